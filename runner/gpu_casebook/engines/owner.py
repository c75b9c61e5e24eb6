"""Whose a container, volume or scratch directory is, so that what a killed run left can be told from what is in use."""

import hashlib
import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import psutil

# A process's start time moves with corrections of the host's clock; no pid is used again by a process as old.
_TOLERANCE_S = 60.0


class Owner(NamedTuple):
    """A runner's process: its host, its pid, and when it started in seconds since the epoch."""

    host: str
    pid: int
    started: float

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}"

    @classmethod
    def current(cls) -> Self:
        process = psutil.Process()
        return cls(host_name(), process.pid, process.create_time())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that `str` wrote; None for any other text."""
        found = re.fullmatch(r"([^:]*):(\d+):(\d+(?:\.\d+)?)", text)
        return cls(found[1], int(found[2]), float(found[3])) if found else None

    @property
    def gone(self) -> bool:
        """Whether it has ended: False if that can't be seen from here, as of another host."""
        if self.host != host_name():
            return False
        try:
            started = psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False
        return abs(started - self.started) > _TOLERANCE_S


@cache
def host_name() -> str:
    """Return the host's name with a mark of the machine and of its pid namespace.

    Two runners may share one engine and yet not see each other's pids: two machines of the same name, or two
    containers of one host.
    """
    marks = ""
    with suppress(OSError):
        marks += Path("/etc/machine-id").read_text(encoding="ascii")
    with suppress(OSError):
        marks += str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()}-{hashlib.sha256(marks.encode()).hexdigest()[:8]}"
