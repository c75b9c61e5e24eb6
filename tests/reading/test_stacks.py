"""Against what faulthandler of Python 3.11 and py-spy 0.4.3 wrote of real processes, shortened."""

import pytest

from failure_signature.reading.stacks import asleep, frames_that_matter, matching, standing, that_matter
from failure_signature.result import ProcessStack

FAULTHANDLER = """\
Thread 0x00007f8d3b7fe6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/case/repro.py", line 83 in watch

Current thread 0x00007f6ef1e81b80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "/env/lib/python3.11/site-packages/torch/_tensor.py", line 623 in backward
  File "/case/repro.py", line 106 in main
  File "<string>", line 1 in <module>
"""

PY_SPY = """\
Process 20730: /tmp/x/bin/python -B repro.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 0x7F8ABDAA (idle): "Thread-1 (<lambda>)"
    clock_nanosleep (libc.so.6)
    time_sleep (timemodule.c:2038)
    print_stacks_while_running.<locals>.watch (repro.py:83)
Thread 20730 (idle): "MainThread"
    0x7f8abdaa3f16 (libc.so.6)
    pthread_cond_wait (libc.so.6)
    c10d::Work::wait (libtorch_cpu.so)
    lock_PyThread_acquire_lock (_threadmodule.c:146)
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    Gather.backward (repro.py:41)
    <module> (repro.py:106)
"""


def stack(number: int, function: str, **changed: object) -> ProcessStack:
    text = f'Current thread 0x0 (most recent call first):\n  File "/case/x.py", line 1 in {function}\n'
    whole = {"number": number, "command": "x.py", "source": "faulthandler", "text": text}
    return ProcessStack.model_validate(whole | changed)


def test_frames_that_matter_are_the_scripts_threads_without_what_says_nothing() -> None:
    assert frames_that_matter(stack(1, "", text=FAULTHANDLER), "repro.py") == FAULTHANDLER.replace(
        '  File "<string>", line 1 in <module>\n', ""
    ).replace("\n\n", "\n").rstrip("\n")
    shown = frames_that_matter(stack(1, "", source="py-spy native", text=PY_SPY), "repro.py").splitlines()
    assert [line.split(" (")[0].strip() for line in shown] == [
        *("Thread 0x7F8ABDAA", "clock_nanosleep", "time_sleep", "print_stacks_while_running.<locals>.watch"),
        *("Thread 20730", "pthread_cond_wait", "c10d::Work::wait", "lock_PyThread_acquire_lock", "all_reduce"),
        *("Gather.backward", "<module>"),
    ]
    assert frames_that_matter(stack(1, "", text=FAULTHANDLER), "fixed.py") == FAULTHANDLER


def test_processes_that_matter_are_the_ranks_or_those_without_children() -> None:
    parent, child, helper = stack(1, "join"), stack(2, "work", parent=1), stack(3, "read", parent=1)
    tracker = helper.model_copy(update={"command": "multiprocessing.resource_tracker"})
    assert that_matter([parent, child, tracker]) == [child]
    ranks = [each.model_copy(update={"rank": rank}) for rank, each in enumerate((parent, child))]
    assert that_matter([*ranks, helper]) == ranks


def test_one_process_needs_no_name() -> None:
    assert standing([stack(1, "acquire")]) == "in `acquire`"
    assert standing([]) == ""
    assert standing([stack(1, "", source="kernel", text="waits in pipe_read")]) == ""


def test_a_process_told_of_twice_is_one() -> None:
    assert standing([stack(1, "acquire"), stack(1, "", source="py-spy native", text=PY_SPY)]) == "in `acquire`"


def test_ranks_are_told_each_by_its_first_process() -> None:
    stacks = [
        stack(1, "wait"),
        stack(2, "barrier", rank=1, parent=1),
        stack(3, "run_backward", rank=0, parent=1),
        stack(4, "select", rank=0, parent=3),  # such as a data loader's worker
    ]
    assert standing(stacks) == "rank 0 in `run_backward`, rank 1 in `barrier`"


def test_without_ranks_those_are_told_that_wait_for_no_child() -> None:
    stacks = [
        stack(1, "join"),
        stack(2, "main", parent=1, command="multiprocessing.resource_tracker"),
        stack(3, "all_reduce", parent=1),
        stack(4, "all_gather", parent=1),
        stack(5, "", parent=1, source="kernel", text="waits in nothing"),
    ]
    assert standing(stacks) == "process 3 in `all_reduce`, process 4 in `all_gather`"


def test_many_ranks_are_not_all_told() -> None:
    told = standing([stack(rank + 1, "barrier", rank=rank) for rank in range(64)])
    assert told.startswith("rank 0 in `barrier`, rank 1 in `barrier`, ")
    assert told.endswith("rank 7 in `barrier`, and 56 more")


def test_matching_looks_at_every_function_of_the_main_thread() -> None:
    stacks = [stack(1, "wait"), stack(2, "", text=FAULTHANDLER)]
    assert matching("_engine_run_backward|all_reduce", stacks) == stacks[1:]
    assert matching("^main$", stacks) == stacks[1:]
    spied = stack(3, "", source="py-spy native", text=PY_SPY)
    assert matching("all_reduce|^c10d::", [spied]) == [spied]
    kernel = stack(4, "", source="kernel", text="waits in futex_do_wait")
    assert matching("futex", [kernel]) == [kernel]


@pytest.mark.parametrize(
    "pattern",
    ["watch", "threading", "repro.py", "packages", "File", "time_sleep", "clock_nanosleep", "MainThread"],
)
def test_other_threads_and_files_do_not_match(pattern: str) -> None:
    told = [stack(1, "", text=FAULTHANDLER), stack(2, "", source="py-spy native", text=PY_SPY)]
    assert matching(pattern, told) == []


@pytest.mark.parametrize(
    ("text", "sleeps"),
    [
        (PY_SPY, False),  # another thread does
        (PY_SPY.replace("    pthread_cond_wait (libc.so.6)", "    clock_nanosleep (libc.so.6)"), True),
        (PY_SPY.replace("    c10d::Work::wait (libtorch_cpu.so)", "    time_sleep (timemodule.c:2038)"), True),
        (FAULTHANDLER, False),
    ],
)
def test_a_main_thread_that_sleeps_by_the_clock(text: str, sleeps: object) -> None:
    source = "faulthandler" if text is FAULTHANDLER else "py-spy native"
    assert asleep(stack(1, "", source=source, text=text)) is sleeps
