"""What every engine gives to a trial."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from failure_signature.text import path_list
from gpu_casebook.engines.base import VARIABLES

# Says how many seconds of processor time the threads took that NumPy's BLAS started; a tick is 1/100 s.
IDLE = """
import os, time
import numpy
time.sleep(0.5)
others = [name for name in os.listdir("/proc/self/task") if int(name) != os.getpid()]
fields = [open(f"/proc/self/task/{name}/stat").read().rpartition(")")[2].split() for name in others]
print(len(others), sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK"))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core, NumPy's BLAS starts no threads")
def test_threads_of_numpy_sleep_while_there_is_nothing_to_compute() -> None:
    ran = subprocess.run([sys.executable, "-c", IDLE], env=VARIABLES, capture_output=True, text=True, check=True)
    threads, took_s = ran.stdout.split()
    assert int(threads)
    assert float(took_s) / int(threads) < 0.03


COMPILERS = """
import os
from torch._inductor.async_compile import AsyncCompile
AsyncCompile.warm_pool()
print(len(open(f"/proc/self/task/{os.getpid()}/children").read().split()))
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="this Python has no PyTorch")
def test_inductor_starts_no_processes_that_compile() -> None:
    ran = subprocess.run([sys.executable, "-c", COMPILERS], env=VARIABLES, capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"


def test_paths_leave_out_what_is_empty() -> None:
    assert path_list("/a", None, "", "/b:/c") == "/a:/b:/c"
