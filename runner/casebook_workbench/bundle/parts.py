"""A large archive in parts that fit where one file does not; `gpu_casebook.guest.starter` puts them together again."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import ByteSize, TypeAdapter, ValidationError

from casebook_workbench.bundle.document import Member
from gpu_casebook.errors import UsageError
from gpu_casebook.guest import starter

_BLOCK = 2**20
_LEAST = 2**16


def size(text: str) -> int:
    """Bytes of "48MB", "1GiB" or a number; units as disks have them. Raises UsageError."""
    with suppress(ValidationError):
        found = TypeAdapter(ByteSize).validate_python(text)
        if found >= _LEAST:
            return found
    raise UsageError(f"--split {text}: write a size such as 48MB, 1GiB or a number of bytes, at least 64 KiB")


def split(archive: Path, part_bytes: int) -> list[Path]:
    """Replace an archive by its parts, their list and a starter, all beside it and returned in this order.

    Parts are named x.tar.1of3; the list, x.tar.parts.json, has size and sha256 of each.
    """
    count = max(1, -(-archive.stat().st_size // part_bytes))
    parts = [archive.with_name(f"{archive.name}.{number}of{count}") for number in range(1, count + 1)]
    with archive.open("rb") as file:
        for part in parts:
            _copy(file, part, part_bytes)
    archive.unlink()
    table = {
        "archive": archive.name,
        "parts": [{"name": part.name, **Member.of(part).model_dump()} for part in parts],
    }
    listed, run = (archive.with_name(archive.name + suffix) for suffix in (starter.PARTS, starter.RUN))
    listed.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    shutil.copyfile(starter.__file__, run)
    return [*parts, listed, run]


def _copy(file: IO[bytes], part: Path, left: int) -> None:
    with part.open("wb") as into:
        while left and (block := file.read(min(left, _BLOCK))):
            into.write(block)
            left -= len(block)
