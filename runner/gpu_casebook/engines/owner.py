"""Whose a container, volume or scratch directory is, so that what a killed run left can be told from what is in use."""

import hashlib
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

import psutil

_TOLERANCE_S = 60.0
"""A process's start time moves with corrections of the host's clock; no pid is used again by a process as old."""


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
        """None for what is no owner's name."""
        host, _, rest = text.partition(":")
        pid, _, started = rest.partition(":")
        with suppress(ValueError):
            return cls(host, int(pid), float(started))
        return None

    @property
    def gone(self) -> bool:
        """True only where this host knows: whether a process of another host still runs can't be seen from here."""
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
    """The host's name with a mark of the machine and of the space its pids count in.

    Two runners may share one engine and yet not see each other's pids: two machines of the same name, or two
    containers of one host.
    """
    marks = ""
    with suppress(OSError):
        marks += Path("/etc/machine-id").read_text(encoding="ascii")
    with suppress(OSError):
        marks += str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()}-{hashlib.sha256(marks.encode()).hexdigest()[:8]}"
