"""Files that are read to a bound, written whole or not at all."""

import errno
import io
import os
import stat
import tempfile
import threading
from pathlib import Path


def read_bytes(path: Path, most: int) -> bytes:
    """Return what is in a file of at most `most` bytes.

    Raises OSError, also for what has no end or would wait for somebody, such as a FIFO or a device.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is not a file", str(path))
    with open(path, "rb", opener=_without_waiting) as file:
        content = file.read(most + 1) or b""
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes", str(path))
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path, most: int, encoding: str = "utf-8") -> str:
    """Return the text of a file, as `read_bytes` does. Raises OSError also where it is not UTF-8."""
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path, most)), encoding).read()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "is not UTF-8; save it as UTF-8", str(path)) from None


def disk_is_full(error: OSError) -> bool:
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def os_reason(error: OSError) -> str:
    """Return what an error of the system says, in one line."""
    at = f" {error.filename}" if error.filename else ""
    return f"no space left on{at or ' the disk'}" if disk_is_full(error) else f"{error.strerror or error}{at}"


def unreadable(error: OSError) -> str:
    """Return what is wrong with a file that can't be read, as words that go on after its name."""
    why = "is missing" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return why if why.startswith("is ") else f"can't be read: {why}"


def check_writable(directory: Path) -> None:
    """Raise OSError if no file can be made in the directory, or in the one where it would be made."""
    there = next(place for place in (directory, *directory.absolute().parents) if os.path.lexists(place))
    with tempfile.TemporaryFile(dir=there):
        pass


def write_whole(path: Path, text: str, *, sync: bool = False) -> Path:
    """Replace the file, with the same bytes on every system. With `sync` it outlives a power cut from here on.

    Raises OSError; then the file is as it was, and nothing lies beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.partial")
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
