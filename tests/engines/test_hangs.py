"""Hangs, slowness and ends, of real processes in both engines; see `engines.watching` for what is promised."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from failure_signature.reading.stacks import matching, standing
from failure_signature.result import TrialResult
from gpu_casebook.engines import watching
from gpu_casebook.trial import Watch
from tests.engines.conftest import KINDS
from tests.engines.subjects import TOKEN, Bench, Subject

WATCH = Watch(after_s=1.0, still_s=1.5, interval_s=0.5)
PATIENT = replace(WATCH, still_s=5.0)
"""For trials that get on: on a machine that has other things to do, they may seem not to for a while."""
SHORT = {"timeout_s": 10.0}
"""Seconds until a trial that gets on is ended."""

TWO_LOCKS = """
import threading
one, other, both_hold = threading.Lock(), threading.Lock(), threading.Barrier(2)

def take(first, second):
    with first:
        both_hold.wait()
        never_got(second)

def never_got(lock):
    with lock:
        print("past it")

threading.Thread(target=take, args=(other, one)).start()
take(one, other)
"""

SUBPROCESS = """
import subprocess, sys

def wait_for_parent():
    sys.stdin.readline()

def wait_for_child(child):
    child.stdout.readline()

if sys.argv[1:]:
    wait_for_parent()
else:
    order = [sys.executable, __file__, "child"]
    wait_for_child(subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
"""

MULTIPROCESSING = """
import multiprocessing

def wait_for_parent(pipe):
    pipe.recv()

def wait_for_child(pipe):
    pipe.recv()

if __name__ == "__main__":
    context = multiprocessing.get_context("START")
    ours, theirs = context.Pipe()
    context.Process(target=wait_for_parent, args=(theirs,)).start()
    wait_for_child(ours)
"""

FORK = """
import os
ours, theirs = os.pipe(), os.pipe()

def wait_for_parent():
    os.read(ours[0], 1)

def wait_for_child():
    os.read(theirs[0], 1)

wait_for_child() if os.fork() else wait_for_parent()
"""

RANKS = """
import os, subprocess, sys, time

def barrier():
    time.sleep(600)

def run_backward():
    time.sleep(600)

if "RANK" in os.environ:
    barrier() if os.environ["RANK"] == "1" else run_backward()
for rank in range(2):
    last = subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(rank)})
last.wait()
"""


def texts(result: TrialResult) -> list[str]:
    return [stack.text for stack in result.stacks]


@pytest.fixture(scope="session", params=[kind for kind in KINDS if "charliecloud" not in getattr(kind, "values", ())])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Charliecloud's trials are watched as those in virtual environments: one test of test_unpacked.py shows it."""
    made: Subject = request.getfixturevalue(f"{request.param}_subject")
    return made


def must_hang(bench: Bench, script: str, *arguments: str, **options: Any) -> TrialResult:
    result = bench.run(script, *arguments, **{"watch": WATCH, **options})
    assert (result.hung, result.slow, result.timed_out, result.infra) == (True, False, False, None), result
    assert (result.signal, result.exit_status, result.hung_after_s) == ("SIGKILL", None, WATCH.after_s)
    assert result.stacks
    return result


def must_be_slow(bench: Bench, script: str, **options: Any) -> TrialResult:
    result = bench.run(script, **{"watch": PATIENT, "limits": SHORT, **options})
    assert (result.hung, result.slow, result.timed_out, result.infra) == (False, True, True, None), result
    return result


def test_two_locks_taken_crosswise(bench: Bench) -> None:
    result = must_hang(bench, TWO_LOCKS)
    assert standing(result.stacks) == "in `never_got`"
    told = [stack.text for stack in result.stacks if stack.source == "faulthandler"]
    assert len(told) == 1
    assert told[0].count("in never_got") == 2, "both threads"
    assert '"/case/script.py"' in told[0]
    assert "past it" not in result.stdout


@pytest.mark.parametrize(
    "script",
    [
        SUBPROCESS,
        MULTIPROCESSING.replace("START", "spawn"),
        MULTIPROCESSING.replace("START", "fork"),
        MULTIPROCESSING.replace("START", "forkserver"),
        FORK,
    ],
    ids=["subprocess", "spawn", "fork", "forkserver", "os.fork"],
)
def test_two_processes_that_wait_for_each_other(bench: Bench, script: str) -> None:
    result = must_hang(bench, script)
    waiting = {stack.number for stack in matching("wait_for_child", result.stacks)}
    assert waiting == {1}
    below = matching("wait_for_parent", result.stacks)
    assert {stack.parent for stack in below} != {None}
    assert {stack.number for stack in below} & waiting == set(), "each tells of itself alone"
    assert {stack.source for stack in below} >= {"faulthandler"}


def test_each_rank_is_named(bench: Bench) -> None:
    result = must_hang(bench, RANKS)
    assert standing(result.stacks) == "rank 0 in `run_backward`, rank 1 in `barrier`"


def test_a_hang_in_c_that_holds_the_interpreter(bench: Bench) -> None:
    script = """
import ctypes
lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
def stuck(): lock(mutex)
lock(mutex)
stuck()
"""
    result = must_hang(bench, script)
    assert standing(result.stacks) == "in `stuck`"


def test_frames_of_c_where_they_can_be_seen(bench: Bench) -> None:
    result = must_hang(bench, "import time\ndef stuck(): time.sleep(600)\nstuck()")
    seen = [stack.text for stack in result.stacks if stack.source == "py-spy native"]
    if not seen:
        pytest.skip("this machine does not let one look into processes")
    assert "nanosleep" in seen[0]
    assert "stuck (script.py:2)" in seen[0]


def test_who_ignores_being_told_to_end_is_ended_all_the_same(bench: Bench, subject: Subject) -> None:
    token = uuid.uuid4().hex
    ignoring = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\n"
    must_hang(bench, ignoring + FORK, variables={TOKEN: token})
    assert subject.processes(token) == 0


def test_the_same_line_again_and_again_is_no_progress(bench: Bench) -> None:
    script = """
import threading, time
def beat():
    while True:
        print("still waiting", flush=True)
        time.sleep(0.2)
threading.Thread(target=beat, daemon=True).start()
def stuck(): threading.Event().wait()
stuck()
"""
    result = must_hang(bench, script)
    assert standing(result.stacks) == "in `wait`"
    assert matching("stuck", result.stacks)


def test_new_lines_are_progress(bench: Bench) -> None:
    result = must_be_slow(bench, "import time\nfor n in range(1000): print('step', n); time.sleep(0.4)")
    assert "step 3\n" in result.stdout


def test_a_core_that_is_kept_busy_by_one_call_into_c_is_progress(bench: Bench) -> None:
    result = must_be_slow(bench, "def work(): sum(range(10**13))\nwork()")
    assert matching("work", result.stacks), "stacks of the slow are kept too"


def test_a_core_that_is_kept_busy_by_a_child_is_progress(bench: Bench) -> None:
    must_be_slow(bench, "import os\nos.wait() if os.fork() else sum(range(10**13))")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that a process is taken to use a GPU by."""
    copy = tmp_path / watching.SAMPLER.name
    copy.write_text(watching.SAMPLER.read_text().replace('"/dev/nvidia"', '"/dev/zero"'))
    monkeypatch.setattr(watching, "SAMPLER", copy)
    return "/dev/zero"


def test_where_waiting_for_a_gpu_burns_a_core_stacks_decide(bench: Bench, device: str) -> None:
    script = f"gpu = open({device!r})\ndef spin(): sum(range(10**13))\nspin()"
    result = must_hang(bench, script, watch=replace(WATCH, spins=True))
    assert standing(result.stacks) == "in `spin`"


def test_who_has_no_gpu_does_not_wait_for_one(bench: Bench) -> None:
    must_be_slow(bench, "sum(range(10**13))", watch=replace(WATCH, spins=True))


def test_a_loop_in_python_moves_even_there(bench: Bench) -> None:
    script = "\n".join(["while True:", *(f"    n{i} = sum(range(1000))" for i in range(500))])
    must_be_slow(bench, script, watch=replace(PATIENT, spins=True))


def test_who_ends_late_has_ended(bench: Bench) -> None:
    script = "import time\ntime.sleep(1.5)\nprint('done')"
    result = bench.run(script, watch=replace(WATCH, still_s=30.0))
    assert (result.exit_status, result.stdout, result.hung, result.slow) == (0, "done\n", False, False)
    assert result.stacks == ()


@pytest.mark.parametrize(
    ("end", "exit_status", "signal"),
    [("raise ValueError('late')", 1, None), ("os.abort()", None, "SIGABRT"), ("sys.exit(7)", 7, None)],
)
def test_who_crashes_late_has_crashed(bench: Bench, end: str, exit_status: int | None, signal: str | None) -> None:
    result = bench.run(f"import os, sys, time\ntime.sleep(1.5)\n{end}", watch=replace(WATCH, still_s=30.0))
    assert (result.exit_status, result.signal, result.hung, result.timed_out) == (exit_status, signal, False, False)


def test_too_little_time_says_nothing(bench: Bench) -> None:
    result = bench.run("import time; time.sleep(600)", watch=replace(WATCH, still_s=60.0), limits={"timeout_s": 3.0})
    assert (result.timed_out, result.hung, result.slow, result.hung_after_s) == (True, False, False, None)
    assert result.stacks


def test_who_can_not_answer_is_not_asked(bench: Bench) -> None:
    """The signal that asks for stacks would kill a program that is no Python, or is none any more."""
    script = """
import os, subprocess
def wait():
    subprocess.Popen(["sleep", "600"])
    os.execvp("sleep", ["sleep", "601"]) if os.fork() == 0 else os.wait()
wait()
"""
    result = must_hang(bench, script)
    sleeping = [stack for stack in result.stacks if stack.command == "sleep"]
    assert [stack.source for stack in sleeping] == ["kernel", "kernel"]
    assert standing(result.stacks) == "in `wait`"


@pytest.mark.parametrize(
    ("handler", "isolated"), [("signal.SIG_DFL", ""), ("signal.SIG_DFL", "-I"), ("lambda *_: os._exit(9)", "-I")]
)
def test_who_uses_that_signal_otherwise_is_not_asked_either(bench: Bench, handler: str, isolated: str) -> None:
    script = f"""
import os, signal, subprocess, sys
def wait():
    if sys.argv[1:]:
        signal.signal(61, {handler})
        signal.pause()
    subprocess.run([sys.executable, *"{isolated}".split(), "script.py", "child"])
    print("the child has ended")
wait()
"""
    result = must_hang(bench, script)
    assert result.stdout == ""
    assert len({stack.number for stack in result.stacks}) == 2


LOOK_AROUND = """
import faulthandler, os, signal, sys, tempfile
caught = [n for n in range(1, 65) if n != 61 and signal.getsignal(n) not in (signal.SIG_DFL, signal.SIG_IGN)]
print(sys.path, sorted(os.listdir(tempfile.gettempdir())), os.open("/dev/null", 0), caught, faulthandler.is_enabled())
"""


def test_a_script_sees_nothing_of_it(bench: Bench) -> None:
    watched = bench.run(LOOK_AROUND, watch=WATCH)
    assert watched.exit_status == 0, watched.stderr
    assert watched.stdout == bench.run(LOOK_AROUND).stdout
    assert watched.stderr == ""


def test_the_trial_has_its_own_path_and_sitecustomize(bench: Bench) -> None:
    files = {
        "own/sitecustomize.py": b"print('own sitecustomize')",
        "own/helper.py": b"VALUE = 7",
    }
    script = "import helper, sitecustomize; print(helper.VALUE, sitecustomize.__file__)"
    result = bench.run(script, watch=WATCH, files=files, variables={"PYTHONPATH": "/own:own"})
    assert result.stdout == "own sitecustomize\n7 /case/own/sitecustomize.py\n", result.stderr


def test_an_error_in_its_own_sitecustomize_is_told_as_ever(bench: Bench) -> None:
    options: dict[str, Any] = {"files": {"own/sitecustomize.py": b"import nothing_like_it"}}
    options["variables"] = {"PYTHONPATH": "own"}
    watched, plain = (bench.run("print('ran')", watch=watch, **options) for watch in (WATCH, None))
    assert (watched.stdout, watched.exit_status) == (plain.stdout, plain.exit_status)
    assert watched.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert "nothing_like_it" in watched.stderr


def test_nothing_private_is_in_the_stacks(bench: Bench) -> None:
    result = must_hang(bench, "import threading\nthreading.Event().wait()")
    assert not [text for text in texts(result) if bench.prepared.python.rpartition("/bin/")[0] + "/lib" in text]
    assert not any("casebook" in text for text in texts(result))


def test_what_is_kept_can_be_taken_away(bench: Bench, subject: Subject) -> None:
    result = bench.run("print('look')", watch=WATCH, keep=True)
    assert result.kept
    assert subject.take_away(result.kept) == b"print('look')"
