"""Dumps of stacks, made fit for evidence."""

import pytest

from failure_signature.reading.dumps import LINE_LIMIT, TEXT_LIMIT, command_name, comparable, tidy
from failure_signature.reading.stacks import Source, standing_at
from tests.reading.test_stacks import FAULTHANDLER, PY_SPY, stack


@pytest.mark.parametrize(
    ("source", "text", "function"),
    [
        ("faulthandler", FAULTHANDLER, "_engine_run_backward"),
        ("faulthandler", "", None),
        ("faulthandler", "Current thread 0x0 (most recent call first):\n  <no Python frame>\n", None),
        ("py-spy native", PY_SPY, "all_reduce"),
        ("py-spy", "Thread (idle)\n    Event.wait (threading.py:320)\n", "wait"),
        ("py-spy", 'Thread (idle): "MainThread"\n    poll (libc.so.6)\n', None),
        ("kernel", "waits in futex_do_wait", None),
    ],
)
def test_where_the_main_thread_stands(source: Source, text: str, function: str | None) -> None:
    assert standing_at(stack(1, "", source=source, text=text)) == function
    assert standing_at(stack(1, "", source=source, text=tidy(source, text))) == function


def test_tidy_leaves_out_the_numbers_of_this_machine() -> None:
    tidied = tidy("py-spy native", PY_SPY)
    assert tidied.startswith('Thread (idle): "Thread-1 (<lambda>)"\n    clock_nanosleep')
    assert "20730" not in tidied
    assert "/tmp/x" not in tidied
    assert "    all_reduce (torch/distributed/distributed_c10d.py:3252)" in tidied


def test_tidy_bounds_lines_and_text() -> None:
    tidied = tidy("py-spy native", "    f (x.py:1)\n    " + "pybind11::" * 1000 + "\n    g (x.py:2)\n" * 5000)
    lines = tidied.splitlines()
    assert lines[0] == "    f (x.py:1)"
    assert len(lines[1]) == LINE_LIMIT
    assert len(tidied) < TEXT_LIMIT + 100
    assert lines[-1].startswith("[...")


def test_whoever_got_the_signal_nothing_moved() -> None:
    other = FAULTHANDLER.replace("Current thread", "Thread").replace("Thread 0x00007f8d", "Current thread 0x00007f8d")
    assert other != FAULTHANDLER
    assert comparable(other) == comparable(FAULTHANDLER)
    assert comparable(FAULTHANDLER.replace("line 979", "line 980")) != comparable(FAULTHANDLER)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/env/bin/python", "repro.py", "--rank", "1"], "repro.py"),
        (["python3.11", "-u", "-X", "dev", "/case/train.py"], "train.py"),
        (["/usr/bin/python3", "-m", "torch.distributed.run", "x.py"], "-m torch.distributed.run"),
        (["python", "-B", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], "multiprocessing.spawn"),
        (["python", "-c", "print(1)"], "-c ..."),
        (["python"], "python"),
        (["/opt/private/bin/nvcc", "x.cu"], "nvcc"),
        (["pythonic"], "pythonic"),
        ([], "a process"),
    ],
)
def test_command_name(words: list[str], name: str) -> None:
    assert command_name(words) == name
