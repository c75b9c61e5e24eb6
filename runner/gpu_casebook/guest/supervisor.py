"""Runs one trial as a child and ends every process that comes of it. Run as `python -I -S supervisor.py`.

Its stdin is a socket: it reads orders from it as one line of JSON, and writes to it how the trial ended as JSON. Nobody
else can open a socket, as a trial could open the pipe of a process of its own user. The trial's output goes to the two
file descriptors that the orders name. When stdin closes, the runner is gone or wants the trial to end.

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
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
CAP_SYS_PTRACE = 19

_PAUSE_S = 0.05
_SHARE = 20  # reading /proc takes at most one part in so many of a core's time
_UNKILLABLE_S = (
    10.0  # a process that hangs in a driver outlives SIGKILL: the next trial should not wait for it for ever
)

_SHARED = "/dev/shm"  # noqa: S108 where every process may store files in memory
_URGENCY = -10  # niceness: thousands of busy processes leave too little time to end them

_PAGE = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """What /proc/<pid>/stat says of a process."""

    pid: int
    parent: int
    state: str
    threads: int
    resident: int  # bytes of memory

    @property
    def lives(self) -> bool:
        # One whose first thread has ended looks like a zombie, while others go on.
        return self.state not in "ZX" or self.threads > 1


def prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def read_process(pid: int) -> Process | None:
    """Return a process; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the program's name may hold anything
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[17]), int(fields[21]) * _PAGE)


def descendants(root: int) -> list[Process]:
    """Return living processes below `root`. Orphans are among them, as `root` is a subreaper."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 this is done often
    everybody = [process for pid in pids if (process := read_process(pid))]
    children: dict[int, list[Process]] = {}
    for process in everybody:
        children.setdefault(process.parent, []).append(process)
    found, queue = list[Process](), [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [process.pid for process in below]
    return [process for process in found if process.lives]


def memory(processes: list[Process], limit: int, stored: int = 0) -> int:
    """Return bytes in use, pages that processes share counted once where that matters.

    `stored` bytes are in files, which a process may hold in its memory too.
    """
    resident = sum(process.resident for process in processes)
    if resident + stored <= limit:  # without shared pages it can only be less; how much less is slow to find out
        return resident + stored
    sizes = [_proportional(process) for process in processes]
    return sum(size for size, _ in sizes) + max(0, stored - sum(shared for _, shared in sizes))


def _proportional(process: Process) -> tuple[int, int]:
    """Return a process's bytes of memory, and those of them that are files in memory."""
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:  # it is another user's, or it has ended meanwhile
        now = read_process(process.pid)
        return (now.resident if now else 0), 0
    found = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in rollup.splitlines()[1:])
    }
    return found.get("Pss", 0), found.get("Pss_Shmem", 0)


class Stored:
    """Bytes in the files of a trial: those in its scratch directories, and what is new in memory that all can use."""

    def __init__(self, places: list[str]) -> None:
        self.places = places
        self.before = set(files_below([_SHARED])) if places else set()
        self.bytes = 0
        self.due = 0.0

    def look(self) -> int:
        """Return how many there are, or lately were: to look takes long where there are many."""
        if self.places and time.monotonic() >= self.due:
            begun = time.thread_time()
            found = files_below(self.places)
            found.update((file, size) for file, size in files_below([_SHARED]).items() if file not in self.before)
            self.bytes = sum(found.values())
            self.due = time.monotonic() + _SHARE * (time.thread_time() - begun)
        return self.bytes


def files_below(places: list[str]) -> dict[tuple[int, int], int]:
    """Return bytes on disk or in memory of this user's files, by device and inode."""
    found = {}
    queue = list(places)
    while queue:
        place = queue.pop()
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    if stat.st_uid == os.getuid():
                        found[stat.st_dev, stat.st_ino] = stat.st_blocks * 512
    return found


def tie(niceness: int) -> None:
    """In the trial's first process: end with the supervisor, should it be killed, and have none of its rights."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    with contextlib.suppress(OSError):  # nobody but root has any to lose
        prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE)


def start(orders: dict[str, Any]) -> int:
    """Start the trial's first process and return its pid. Raises OSError if there is no such program."""
    child = subprocess.Popen(
        orders["command"],
        cwd=orders["directory"],
        env=orders["variables"],
        stdin=subprocess.DEVNULL,
        stdout=orders["stdout"],
        stderr=orders["stderr"],
        start_new_session=True,
        preexec_fn=lambda: tie(orders["niceness"]),  # noqa: PLW1509 there are no threads here
    )
    child.returncode = 0  # its status is taken by `reap`
    return child.pid


def watch(pid: int, orders: dict[str, Any], statuses: dict[int, int], bell: int) -> str | None:
    """Wait for the trial's end. Return why it has to be ended, or None if it ended by itself."""
    deadline = time.monotonic() + orders["timeout_s"]
    stored = Stored(orders["places"])
    while pid not in reap(statuses):
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        begun = time.thread_time()  # what waiting for a core takes is no work of ours
        excess = passed_limit(descendants(os.getpid()), orders, stored)
        if excess:
            return excess
        pause = max(_PAUSE_S, _SHARE * (time.thread_time() - begun))
        if runner_is_gone(bell, min(pause, deadline - now)):
            return "abandoned"
    return None


def passed_limit(processes: list[Process], orders: dict[str, Any], stored: Stored) -> str | None:
    """Return the name of the limit that is passed, if one is. Counting comes first: it is quick."""
    if sum(process.threads for process in processes) > orders["processes"]:
        return "processes"
    limit = orders["memory_bytes"]
    return "memory" if memory(processes, limit, stored.look()) > limit else None


def runner_is_gone(bell: int, within_s: float) -> bool:
    """Wait until a child ends (then the bell rings) or the time is over; return whether stdin has closed meanwhile."""
    ready, _, _ = select.select([0, bell], [], [], within_s)
    if bell in ready:
        os.read(bell, 4096)
    return 0 in ready and not os.read(0, 1)


def end_all(below: Callable[[], list[Process]], reap: Callable[[], object]) -> list[int]:
    """Kill all that `below` finds, also what it starts meanwhile. Return what could not be killed."""
    give_up = time.monotonic() + _UNKILLABLE_S
    _stop_all(below)
    while processes := below():
        for process in processes:
            _signal(process.pid, signal.SIGKILL)
        reap()
        if time.monotonic() > give_up:
            return [process.pid for process in processes]
        time.sleep(0.002)
    reap()
    return []


def _stop_all(below: Callable[[], list[Process]]) -> None:
    """Stop everything: what is stopped starts nothing new, so that nothing gets away."""
    stopped: set[int] = set()
    while fresh := {process.pid for process in below()} - stopped:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap(statuses: dict[int, int]) -> dict[int, int]:
    """Add children and orphans that have ended to `statuses`: exit statuses, or signals as negative numbers."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return statuses


def _bell() -> int:
    """Return a file descriptor that becomes readable when a child ends."""
    heard, rung = os.pipe()
    os.set_blocking(rung, False)
    os.set_blocking(heard, False)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return heard


def supervise(orders: dict[str, Any]) -> dict[str, Any]:
    """Run a trial; return how it ended.

    That is its `status`, as `reap` has it, or `infra`, why there is none; and `ended_for`, the limit that it passed.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)  # the trial has no business in this process, whoever its user is
    orders["niceness"] = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, orders["niceness"] + _URGENCY)
    bell, statuses, begun = _bell(), dict[int, int](), time.monotonic()
    try:
        pid = start(orders)
    except OSError as error:
        return {"infra": f"the trial could not be run: {error.strerror}: {error.filename}"}
    finally:
        os.close(orders["stdout"])
        os.close(orders["stderr"])
    ended_for = watch(pid, orders, statuses, bell)
    ended = {"duration_s": time.monotonic() - begun, "ended_for": ended_for}
    if left := end_all(lambda: descendants(os.getpid()), lambda: reap(statuses)):
        return {**ended, "infra": f"processes that can't be killed are left: {', '.join(map(str, left))}"}
    if statuses[pid] != -signal.SIGKILL:
        ended["ended_for"] = None  # it ended by itself before that
    return {**ended, "status": statuses[pid]}


def main(orders: dict[str, Any]) -> None:
    """Run a trial, and write how it ended to the socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The runner closes stdin if it wants an end. Not SIG_IGN: the trial would inherit that.
        signal.signal(number, lambda *_: None)
    try:
        ended = supervise(orders)
    except Exception as error:  # noqa: BLE001 nobody reads a traceback of this process
        ended = {"infra": f"the trial could not be run: its supervisor failed: {error!r}"}
    with contextlib.suppress(OSError):  # the runner may be gone
        os.write(0, json.dumps(ended).encode())


if __name__ == "__main__":
    main(json.loads(sys.stdin.buffer.readline()))
