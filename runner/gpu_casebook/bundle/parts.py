"""A large archive in parts that fit where one file does not; `gpu_casebook.guest.starter` puts them together again."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import ByteSize, TypeAdapter, ValidationError

from gpu_casebook.errors import UsageError
from gpu_casebook.guest import starter

_BLOCK = 2**20
_LEAST = 2**16


def size(text: str) -> int:
    """Bytes of "56MB", "1GiB" or a number; units as disks have them. Raises UsageError."""
    with suppress(ValidationError):
        found = TypeAdapter(ByteSize).validate_python(text)
        if found >= _LEAST:
            return found
    raise UsageError(f"--split {text}: write a size such as 56MB, 1GiB or a number of bytes, at least 64 KiB")


def split(archive: Path, part_bytes: int) -> list[Path]:
    """Replace an archive by its parts, their list and a starter, all beside it and returned in this order.

    Parts are named x.tar.1of3; the list, x.tar.parts.json, has size and sha256 of each.
    """
    total = archive.stat().st_size
    count = max(1, -(-total // part_bytes))
    with archive.open("rb") as file:
        paths = [_part(file, archive, number, count, part_bytes) for number in range(1, count + 1)]
    archive.unlink()
    table = {
        "archive": archive.name,
        "parts": [
            {"name": path.name, "size": path.stat().st_size, "sha256": starter.digest_of(path)} for path in paths
        ],
    }
    listed = archive.with_name(archive.name + starter.PARTS)
    listed.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    run = archive.with_name(archive.name + starter.RUN)
    shutil.copyfile(starter.__file__, run)
    return [*paths, listed, run]


def _part(file: IO[bytes], archive: Path, number: int, count: int, size_bytes: int) -> Path:
    path = archive.with_name(f"{archive.name}.{number}of{count}")
    left = size_bytes
    with path.open("wb") as part:
        while left and (block := file.read(min(left, _BLOCK))):
            part.write(block)
            left -= len(block)
    return path
