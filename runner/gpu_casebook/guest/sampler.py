"""Prints where every process of a trial stands at this moment, as one line of JSON: one sample of a watched trial.

Run as `python -I -S sampler.py ROOT [PY_SPY]` beside the trial, as its user: every process below the process ROOT is
looked at. PY_SPY, the path of that program, asks for what it sees too; that takes seconds, not milliseconds.
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
from typing import Any

SIGNAL = 61
MARK = "casebook-stacks-"
"""Both as in watched/sitecustomize.py."""

PROCESSES = 64
"""So many are looked at more closely."""
TEXT = 64 * 1024
"""Bytes of one process's stacks, at most."""

_PATIENCE_S = 2.0
_PAUSE_S = 0.02
_PY_SPY_S = 30.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def processes(root: int) -> list[dict[str, Any]]:
    """Living processes below `root`, parents before their children; at most PROCESSES."""
    everybody = [seen for name in _listed("/proc") if name.isdigit() and (seen := process(int(name)))]
    found, at = [root], 0
    children: list[dict[str, Any]] = []
    while at < len(found):
        below = sorted((one for one in everybody if one["parent"] == found[at]), key=lambda one: int(one["pid"]))
        children += below
        found += [one["pid"] for one in below]
        at += 1
    return [one for one in children if one["state"] not in "ZX" or one["threads"] > 1][:PROCESSES]


def process(pid: int) -> dict[str, Any] | None:
    """What /proc tells at once; None if it is gone. `cpu_s` is the CPU time that all its threads got."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the program's name may hold anything
    return {
        "pid": pid,
        "parent": int(fields[1]),
        "state": fields[0].decode(),
        "threads": int(fields[17]),
        "cpu_s": (int(fields[11]) + int(fields[12])) * _TICK_S,
    }


def starved_s(pid: int) -> float:
    """How long the threads that live have waited for a CPU (second number of schedstat); 0 where nobody counts."""
    total = 0
    for task in _listed(f"/proc/{pid}/task"):
        numbers = _read(f"/proc/{pid}/task/{task}/schedstat").split()
        total += int(numbers[1]) if len(numbers) > 1 else 0
    return total / 1e9


def variables(pid: int) -> dict[str, str]:
    """Those it was started with."""
    text = _read(f"/proc/{pid}/environ").decode("utf-8", "replace")
    return {name: value for name, is_one, value in (line.partition("=") for line in text.split("\0")) if is_one}


def command(pid: int) -> list[str]:
    words = _read(f"/proc/{pid}/cmdline")[:4096].decode("utf-8", "replace").split("\0")
    return words[:-1]


def dumps(pids: list[int]) -> dict[int, str]:
    """What faulthandler writes of each process that has asked it to.

    All are asked before anybody is waited for, so that what they say is of one moment.
    """
    asked = {}
    for pid in pids:
        place = stacks_file(pid)
        if place and catches(pid):
            with contextlib.suppress(OSError):
                os.truncate(place, 0)
                os.kill(pid, SIGNAL)
                asked[pid] = place
    _settle(list(asked.values()))
    return {pid: _read(place)[:TEXT].decode("utf-8", "replace") for pid, place in asked.items()}


def stacks_file(pid: int) -> str | None:
    """Where its faulthandler writes; None if this process has not asked it to, or has become another program since."""
    for name in _listed(f"/proc/{pid}/fd"):
        place = f"/proc/{pid}/fd/{name}"
        with contextlib.suppress(OSError):
            if Path(os.readlink(place)).name.startswith(MARK):  # noqa: PTH115 of what has no name any more
                return place
    return None


def catches(pid: int) -> bool:
    """Whether it handles SIGNAL, which would kill it otherwise."""
    for line in _read(f"/proc/{pid}/status").decode("ascii", "replace").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (SIGNAL - 1) & 1)
    return False


def _settle(places: list[str]) -> None:
    """Wait until nobody writes any more: dumps have no end mark."""
    give_up, before, quiet = time.monotonic() + _PATIENCE_S, [-1] * len(places), 0
    while quiet < 2 and time.monotonic() < give_up:
        time.sleep(_PAUSE_S)
        now = [_size(place) for place in places]
        quiet = quiet + 1 if now == before and 0 not in now else 0
        before = now


def spied(py_spy: str, pid: int, within_s: float) -> dict[str, str]:
    """What py-spy sees, by how: with the frames of C and C++ where it can; nothing where it is not let."""
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
    found = processes(root)
    stacks = dumps([one["pid"] for one in found])
    give_up = time.monotonic() + _PY_SPY_S
    for one in found:
        pid = one["pid"]
        text = stacks.get(pid)
        one.update(
            starved_s=starved_s(pid),
            rank=variables(pid).get("RANK"),
            command=command(pid),
            waits_in=_read(f"/proc/{pid}/wchan").decode("ascii", "replace"),
            stacks={"faulthandler": text} if text else {},
        )
        left_s = give_up - time.monotonic()
        if py_spy and left_s > 0:
            one["stacks"].update(spied(py_spy, pid, left_s))
    return {"at": time.monotonic(), "processes": found}


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 names are all that matters
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:  # gone: there is nothing to wait for
        return -1


def main() -> None:
    root, *py_spy = sys.argv[1:]
    sys.stdout.write(json.dumps(sample(int(root), py_spy[0] if py_spy else None)) + "\n")


if __name__ == "__main__":
    main()
