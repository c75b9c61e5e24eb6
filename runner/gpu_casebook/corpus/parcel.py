"""What travels with a job to another machine, which shares no files with this one: the case, and what images are of."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

_LEFT_OUT = frozenset({"__pycache__"})


def pack(root: Path, names: Iterable[str]) -> bytes:
    """These files and directories of a checkout, as an archive: paths within it, contents, and nothing of this machine.

    Links arrive as what they lead to. Raises OSError.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for name in names:
            archive.add(root / name, name, filter=_plain)
    return packed.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _LEFT_OUT & set(entry.name.split("/")) or not (entry.isdir() or entry.isreg()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(packed: bytes, root: Path) -> None:
    """Lay out what `pack` packed. Raises OSError, or tarfile.TarError for what is no such thing."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(root, filter="data")
