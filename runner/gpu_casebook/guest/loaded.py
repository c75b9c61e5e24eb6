"""Prints which CUDA libraries a trial loads, and which Pythons it runs besides its own, each on a line of JSON.

Run as `python -I -S loaded.py ROOT PYTHON` beside the trial, as its user: every process below the process ROOT is
looked at, over and over, until there is none. PYTHON is the environment's own. What comes and goes between two looks
is missed.
It stands alone, with Python 3.8's standard library and nothing else: in a container it runs on the trial's Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LIBRARY = re.compile(rb"/\S*/lib(?:cu|nv|nccl)[^/\s]*\.so[^/\s]*$")
_PYTHON = re.compile(r"python[\d.]*")
_PAUSE_S = (0.02, 0.25)  # at first, and in the end: what a script imports it imports early
_SLOWER = 1.1
_STARTS_WITHIN_S = 10.0


def below(root: int) -> list[int]:
    """Return the processes below `root`."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 this is done often
        stat = _read(f"/proc/{name}/stat")
        if stat:
            children.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        here = children.get(queue.pop(), [])
        found += here
        queue += here
    return found


def libraries(pid: int) -> set[str]:
    """Return the paths of the CUDA libraries that a process has mapped, the driver's among them."""
    lines = _read(f"/proc/{pid}/maps").splitlines()
    return {match[0].decode("utf-8", "replace") for line in lines if (match := _LIBRARY.search(line))}


def program(pid: int) -> str | None:
    """Return where a Python takes itself to lie: that decides what it imports. None of another program."""
    try:
        if not _PYTHON.fullmatch(Path(os.readlink(f"/proc/{pid}/exe")).name):  # noqa: PTH115
            return None
        directory = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    except OSError:
        return None
    name = command(pid).split(b"\0")[0].decode("utf-8", "replace")
    if "/" in name:
        return os.path.normpath(os.path.join(directory, name))  # noqa: PTH118
    variables = dict(line.partition(b"=")[::2] for line in _read(f"/proc/{pid}/environ").split(b"\0"))
    return shutil.which(name, path=variables.get(b"PATH", b"").decode("utf-8", "replace")) if name else None


def command(pid: int) -> bytes:
    return _read(f"/proc/{pid}/cmdline")


def follow(root: int, python: str, wait: Callable[[float], object]) -> Iterator[tuple[str, str]]:
    """Yield ("library", path) and ("python", path), each once, until the trial has ended.

    `wait` waits for so many seconds, or until the trial has ended and returns what is true then.
    """
    seen: set[tuple[str, str]] = set()
    pause, give_up = _PAUSE_S[0], time.monotonic() + _STARTS_WITHIN_S
    while True:
        pids = below(root)
        now = {("library", path) for pid in pids for path in libraries(pid)}
        # A process that was forked and is no other program yet looks like its parent.
        programs = {program(pid) for pid in pids if command(pid) != command(root)}
        now |= {("python", place) for place in programs if place and Path(place).parent != Path(python).parent}
        yield from sorted(now - seen)
        seen |= now
        if not pids and (seen or time.monotonic() > give_up):
            return
        if wait(pause):
            return
        pause = min(pause * _SLOWER, _PAUSE_S[1])


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    for line in follow(int(sys.argv[1]), sys.argv[2], time.sleep):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
