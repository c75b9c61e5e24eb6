"""Runs one trial as a child and answers for every process that comes of it. Run as `python -I -S supervisor.py`.

Reads a request as one line of JSON on stdin, writes how the trial ended as JSON on stdout. The trial's own output goes
to the two file descriptors that the request names. If stdin closes meanwhile, the runner is gone and the trial with it.

Only the standard library, and little of it: this starts anew for each trial.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_PAUSE_S = 0.05
_SHARE = 20
"""Looking at all processes takes at most one part in so many of a core's time."""
_UNKILLABLE_S = 10.0
"""A process that hangs in a driver outlives SIGKILL; the next trial should not wait for it for ever."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """What /proc/<pid>/stat tells, as far as it matters here. Memory in bytes."""

    pid: int
    parent: int
    state: str
    threads: int
    resident: int

    @property
    def lives(self) -> bool:
        """A process whose first thread has ended looks like a zombie, while others go on."""
        return self.state not in "ZX" or self.threads > 1


def prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def read_process(pid: int) -> Process | None:
    """None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the program's name may hold anything
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[17]), int(fields[21]) * _PAGE)


def descendants(root: int) -> list[Process]:
    """Living processes below `root`. Orphans are among them, as `root` is a subreaper."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 this is done often
    everybody = [process for pid in pids if (process := read_process(pid))]
    children: dict[int, list[Process]] = {}
    for process in everybody:
        children.setdefault(process.parent, []).append(process)
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [process.pid for process in below]
    return [process for process in found if process.lives]


def memory(processes: list[Process], limit: int) -> int:
    """Bytes in use. Pages that processes share are counted once only if it matters: that is slow to find out."""
    resident = sum(process.resident for process in processes)
    if resident <= limit:
        return resident
    return sum(_proportional(process) for process in processes)


def _proportional(process: Process) -> int:
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:  # it is another user's, or it has ended meanwhile
        now = read_process(process.pid)
        return now.resident if now else 0
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def start(request: dict[str, Any]) -> int:
    """Pid of the trial's first process. Raises OSError if there is no such program."""

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should this supervisor be killed
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    child = subprocess.Popen(
        request["command"],
        cwd=request["directory"],
        env=request["variables"],
        stdin=subprocess.DEVNULL,
        stdout=request["stdout"],
        stderr=request["stderr"],
        start_new_session=True,
        pass_fds=request.get("pass_fds", ()),
        preexec_fn=tie,  # noqa: PLW1509 there are no threads here
    )
    child.returncode = 0  # its status is taken by `reap`
    return child.pid


def watch(pid: int, request: dict[str, Any], statuses: dict[int, int], bell: int) -> str | None:
    """Wait for the trial's end. Returns why it has to be ended, or None if it ended by itself."""
    deadline = time.monotonic() + request["timeout_s"]
    while pid not in reap(statuses):
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        excess = beyond(descendants(os.getpid()), request)
        if excess:
            return excess
        pause = max(_PAUSE_S, _SHARE * (time.monotonic() - now))
        if runner_is_gone(bell, min(pause, deadline - now)):
            return "abandoned"
    return None


def beyond(processes: list[Process], request: dict[str, Any]) -> str | None:
    """The limit that is passed, if one is."""
    if memory(processes, request["memory_bytes"]) > request["memory_bytes"]:
        return "memory"
    if sum(process.threads for process in processes) > request["processes"]:
        return "processes"
    return None


def runner_is_gone(bell: int, within_s: float) -> bool:
    """Wait until a child ends (then the bell rings) or the time is over, and see whether stdin has closed meanwhile."""
    ready, _, _ = select.select([0, bell], [], [], within_s)
    if bell in ready:
        os.read(bell, 4096)
    return 0 in ready and not os.read(0, 1)


def end_all(statuses: dict[int, int]) -> list[int]:
    """Kill everything below this process, also what it starts meanwhile. Returns what could not be killed."""
    give_up = time.monotonic() + _UNKILLABLE_S
    _stop_all()
    while processes := descendants(os.getpid()):
        for process in processes:
            _signal(process.pid, signal.SIGKILL)
        reap(statuses)
        if time.monotonic() > give_up:
            return [process.pid for process in processes]
        time.sleep(0.002)
    reap(statuses)
    return []


def _stop_all() -> None:
    """What is stopped starts nothing new, so that nothing gets away between two looks."""
    stopped: set[int] = set()
    while fresh := {process.pid for process in descendants(os.getpid())} - stopped:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(statuses: dict[int, int]) -> dict[int, int]:
    """Collect children and orphans that have ended: exit statuses, or signals as negative numbers."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return statuses


def _bell() -> int:
    """A file descriptor that becomes readable when a child ends."""
    heard, rung = os.pipe()
    os.set_blocking(rung, False)
    os.set_blocking(heard, False)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return heard


def supervise(request: dict[str, Any], start: Callable[[dict[str, Any]], int] = start) -> dict[str, Any]:
    """How the trial ended: `status` as `reap` has it, `ended_for` the limit it passed, `left` what can't be killed."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    bell, statuses, begun = _bell(), dict[int, int](), time.monotonic()
    try:
        pid = start(request)
    except OSError as error:
        return {"failed": f"{error.strerror}: {error.filename}"}
    finally:
        os.close(request["stdout"])
        os.close(request["stderr"])
    ended_for = watch(pid, request, statuses, bell)
    duration_s = time.monotonic() - begun
    left = end_all(statuses)
    status = statuses.get(pid)
    if status not in {None, -signal.SIGKILL}:
        ended_for = None  # it was quicker
    return {"status": status, "ended_for": ended_for, "duration_s": duration_s, "left": left}


def _let_the_runner_decide(*_: object) -> None:
    """It closes stdin if it wants an end. Not SIG_IGN: that would be inherited by the trial."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _let_the_runner_decide)
    ended = supervise(json.loads(sys.stdin.buffer.readline()))
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(ended).encode())


if __name__ == "__main__":
    main()
