"""Files that are written whole or not at all, and locks between processes of this machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, text: str, *, sync: bool = False) -> Path:
    """Replace the file, with the same bytes on every system. With `sync` it outlives a power cut from here on.

    Raises OSError; then the file is as it was, and nothing lies beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        if sync:
            _to_disk(partial)
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # writing tells no name, and whoever reads of it wants one
        raise
    if sync:
        _to_disk(path.parent)
    return path


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def sole(path: Path, note: Callable[[str], None], why: str) -> Iterator[None]:
    """Hold the lock at `path`; if another process has it, `note` gets `why` we wait."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 it imports asyncio; most commands lock nothing

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
