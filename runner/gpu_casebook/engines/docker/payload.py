"""The files of a trial, as a container takes them: a tar archive."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath


def archive_of(files: Mapping[str, bytes], *, mode: int = 0o644) -> bytes:
    """Return a tar archive in which everything is root's and may be read by all; equal files, equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        parents = {parent for name in files for parent in PurePosixPath(name).parents if parent.name}
        for directory in sorted(parents):
            entry = tarfile.TarInfo(str(directory))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        end = archive.offset
    # Podman stops reading at the end of the archive, and fails (broken pipe) where padding is still to come.
    return buffer.getvalue()[: end + 2 * tarfile.BLOCKSIZE]
