"""Files that are written whole or not at all, by several processes at once if need be."""

import os
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
