"""A lock between processes of this machine, with a word to whoever waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def sole(path: Path, note: Callable[[str], None], why: str) -> Iterator[None]:
    """Hold the lock at `path`; where another process has it, `note` is told `why` we wait."""
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
