"""Locks between processes of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def sole(path: Path, note: Callable[[str], None], why: str) -> Iterator[None]:
    """Hold the lock at `path`; if another process has it, `note` gets `why` we wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        note(why)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
