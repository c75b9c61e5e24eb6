"""Prints where every process of a trial stands at this moment, as one line of JSON: one sample of a watched trial.

Run as `python -I -S sampler.py ROOT [PY_SPY]` beside the trial, as its user: every process below the process ROOT is
sampled. PY_SPY, the path of that program, asks for what it sees too; that takes seconds, not milliseconds.
It stands alone, with Python 3.8's standard library and nothing else: in a container it runs on the trial's Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

# Both as in watched/sitecustomize.py.
SIGNAL = 61
MARK = "casebook-stacks-"

PROCESSES = 64  # no more of them are sampled
TEXT = 64 * 1024  # bytes of one process's stacks, at most

_GPU = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
_PATIENCE_S = 2.0
_PAUSE_S = 0.02
_PY_SPY_S = 30.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """What /proc/<pid>/stat says of a process."""

    pid: int
    parent: int
    cpu_s: float  # CPU time that all its threads got


def processes(root: int) -> list[Process]:
    """Return living processes below `root`, parents before their children; at most PROCESSES."""
    everybody = [seen for name in _listed("/proc") if name.isdigit() and (seen := process(int(name)))]
    found: list[Process] = []
    queue = [root]
    while queue:
        parent = queue.pop(0)
        below = sorted(one for one in everybody if one.parent == parent)
        found += below
        queue += [one.pid for one in below]
    return found[:PROCESSES]


def process(pid: int) -> Process | None:
    """Return a living process; None if it is gone."""
    stat = _read(f"/proc/{pid}/stat")
    fields = stat[stat.rfind(b")") + 2 :].split()  # the program's name may hold anything
    # One whose first thread has ended looks like a zombie, while others go on.
    if not fields or (fields[0] in b"ZX" and int(fields[17]) < 2):
        return None
    return Process(pid, int(fields[1]), (int(fields[11]) + int(fields[12])) * _TICK_S)


def starved_s(pid: int) -> float:
    """Return how long its living threads have waited for a CPU; 0 where the kernel does not count that."""
    total = 0
    for task in _listed(f"/proc/{pid}/task"):
        numbers = _read(f"/proc/{pid}/task/{task}/schedstat").split()
        total += int(numbers[1]) if len(numbers) > 1 else 0
    return total / 1e9


def rank(pid: int) -> int | None:
    """Return the number in the variable RANK that it was started with; None if there is none."""
    for line in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = line.partition(b"=")
        if name == b"RANK" and value.isdigit():
            return int(value)
    return None


def works(pid: int) -> bool:
    """Return whether a thread of it is running or runnable, in a process that uses no GPU.

    faulthandler's handler reads the frames as they are. Those of a thread that executes byte code may be half made,
    which crashes the process; those of threads that sleep in the kernel are complete. Waiting for a GPU is running too.
    """
    states = [_read(f"/proc/{pid}/task/{task}/stat").rpartition(b") ")[2][:1] for task in _listed(f"/proc/{pid}/task")]
    return b"R" in states and not any(_open(pid, name).startswith(_GPU) for name in _listed(f"/proc/{pid}/fd"))


def command(pid: int) -> list[str]:
    return _read(f"/proc/{pid}/cmdline")[:4096].decode("utf-8", "replace").split("\0")[:-1]


def dumps(pids: list[int]) -> dict[int, str]:
    """Return what faulthandler writes of each process that has registered with it."""
    asked = {}
    for pid in pids:
        place = stacks_file(pid)
        if place and catches(pid):
            with contextlib.suppress(OSError):
                os.truncate(place, 0)
                os.kill(pid, SIGNAL)
                asked[pid] = place
    # All are asked before any is waited for, so that their stacks are of one moment. Dumps have no end mark: they are
    # complete when none grows any more.
    give_up, quiet = time.monotonic() + _PATIENCE_S, 0
    texts = dict.fromkeys(asked, b"")
    while quiet < 2 and time.monotonic() < give_up:
        time.sleep(_PAUSE_S)
        before, texts = texts, {pid: _read(place)[:TEXT] for pid, place in asked.items()}
        quiet = quiet + 1 if texts == before and all(texts.values()) else 0
    return {pid: text.decode("utf-8", "replace") for pid, text in texts.items()}


def stacks_file(pid: int) -> str | None:
    """Return where its faulthandler writes; None if it has not registered, or has become another program since."""
    for name in _listed(f"/proc/{pid}/fd"):
        if Path(_open(pid, name)).name.startswith(MARK):
            return f"/proc/{pid}/fd/{name}"
    return None


def catches(pid: int) -> bool:
    """Return whether it handles SIGNAL, which would kill it otherwise."""
    for line in _read(f"/proc/{pid}/status").decode("ascii", "replace").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def spied(py_spy: str, pid: int, within_s: float) -> dict[str, str]:
    """Return what py-spy sees, by how: with the frames of C and C++ where it can; nothing where it is not allowed."""
    for options, source in ((["--native"], "py-spy native"), ([], "py-spy")):
        order = [py_spy, "dump", *options, "--pid", str(pid)]
        try:
            ended = subprocess.run(order, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        if ended.returncode == 0 and ended.stdout:
            return {source: ended.stdout[:TEXT].decode("utf-8", "replace")}
    return {}


def sample(root: int, py_spy: str | None) -> dict[str, Any]:
    """Return the fields of `engines.watching.Sample`, and of a ProcessSample for each process."""
    found = processes(root)
    busy = {one.pid for one in found if works(one.pid)}
    stacks = dumps([one.pid for one in found if one.pid not in busy])
    give_up = time.monotonic() + _PY_SPY_S
    samples = []
    for one in found:
        pid = one.pid
        seen = {"faulthandler": stacks[pid]} if stacks.get(pid) else {}
        left_s = give_up - time.monotonic()
        if py_spy and left_s > 0:
            seen.update(spied(py_spy, pid, left_s))
        samples.append(
            dict(
                one._asdict(),
                command=command(pid),
                rank=rank(pid),
                waits_in=_read(f"/proc/{pid}/wchan").decode("ascii", "replace"),
                starved_s=starved_s(pid),
                works=pid in busy,
                stacks=seen,
            )
        )
    return {"at": time.monotonic(), "processes": samples}


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 names are all that matters
    except OSError:
        return []


def _open(pid: int, name: str) -> str:
    """Return what a descriptor leads to."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 of what may have no name any more
    except OSError:
        return ""


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    root, *py_spy = sys.argv[1:]
    sys.stdout.write(json.dumps(sample(int(root), py_spy[0] if py_spy else None)) + "\n")
