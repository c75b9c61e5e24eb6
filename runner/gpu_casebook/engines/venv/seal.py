"""What is in the files of an environment, and whether anything of it has changed.

An environment's files are hard links into a store, and a trial may be root's: nothing can be forbidden to it. So what
was installed is held against the RECORDs of the wheels, and from then on size, inode and times of every file are
compared; what differs there is read. A file that another environment shares gets a new ctime, and is the same.
"""

import base64
import csv
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpu_casebook.files import write_whole

_NO_FILE = {"directory", "special"}
Stamp = list[int]
"""Size, inode, mtime and ctime in nanoseconds: as JSON has it."""


@dataclass
class Seal:
    """Every file below `directory` by its path there: its stamp, and a digest of what is in it."""

    directory: Path
    files: dict[str, tuple[Stamp, str]]

    @classmethod
    def of(cls, directory: Path, known: "Seal | None" = None) -> Self:
        """Read every file, except those that are in `known` and look the same."""
        return cls(directory, _sealed(directory, known.files if known else {}))

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return what was written for this directory; None where that can't be read."""
        try:
            written = json.loads(_place(directory).read_text(encoding="utf-8"))
            return cls(directory, {name: (stamp, digest) for name, (stamp, digest) in written.items()})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def write(self) -> Self:
        write_whole(_place(self.directory), json.dumps(self.files))
        return self

    @property
    def content(self) -> str:
        """A digest over the content of all files."""
        digests = sorted((name, digest) for name, (_, digest) in self.files.items())
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()

    def digest(self, name: str) -> str:
        """Return the SHA-256 of the file at this path, or another word where there is none."""
        return self.files.get(name, ([], ""))[1]

    def changed(self) -> list[str]:
        """Return the paths of what is another, new or gone."""
        if _stamps(self.directory) == {name: stamp for name, (stamp, _) in self.files.items()}:
            return []
        files = _sealed(self.directory, self.files)
        known, found = ({name: digest for name, (_, digest) in each.items()} for each in (self.files, files))
        different = {name for name, _ in known.items() ^ found.items()}
        if not different and files != self.files:
            self.files = files
            self.write()  # so that nobody has to read them again
        return sorted(different)

    def unrecorded(self, bare: "Seal") -> list[str]:
        """Return the paths of what is not as a RECORD says, or in none; `bare` is what was there before."""
        recorded = dict(_recorded(self.directory))
        found = {name: digest for name, (_, digest) in self.files.items() if digest not in _NO_FILE}
        known = {name: digest for name, (_, digest) in bare.files.items()}
        extra = [name for name in found if name not in recorded and known.get(name) != found[name]]
        wrong = [name for name, digest in recorded.items() if digest and digest != found.get(name)]
        return sorted([*extra, *wrong])


def forget(directory: Path) -> None:
    """Remove what was written for this directory."""
    _place(directory).unlink(missing_ok=True)


def _place(directory: Path) -> Path:
    return directory.with_suffix(".json")


def _sealed(directory: Path, known: dict[str, tuple[Stamp, str]]) -> dict[str, tuple[Stamp, str]]:
    stamps = _stamps(directory)
    sealed = {name: known[name] for name, stamp in stamps.items() if name in known and known[name][0] == stamp}
    to_read = [name for name in stamps if name not in sealed]
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        digests = pool.map(lambda name: _digest(directory / name), to_read)
        return sealed | {name: (stamps[name], digest) for name, digest in zip(to_read, digests, strict=True)}


def _stamps(directory: Path) -> dict[str, Stamp]:
    found: dict[str, Stamp] = {}
    queue = [""]
    while queue:
        place = queue.pop()
        with suppress(FileNotFoundError), os.scandir(f"{directory}/{place}") as entries:  # thrown away meanwhile
            for entry in entries:
                name = f"{place}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    found[name] = []
                    queue.append(f"{name}/")
                else:
                    seen = entry.stat(follow_symlinks=False)
                    found[name] = [seen.st_size, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns]
    return found


def _digest(path: Path) -> str:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        if stat.S_ISLNK(mode):
            return f"leads to {path.readlink()}"
        return "directory" if stat.S_ISDIR(mode) else "special"
    except OSError as error:
        return f"can't be read: {error.strerror}"


def _recorded(directory: Path) -> Iterator[tuple[str, str]]:
    """Yield each path that a RECORD has, with its digest; none for the RECORD itself."""
    for record in directory.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        with record.open(newline="", encoding="utf-8") as lines:
            for name, digest in _columns(csv.reader(lines)):
                yield os.path.normpath(record.parents[1].relative_to(directory) / name), _hexadecimal(digest)


def _columns(rows: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    return ((row[0], row[1]) for row in rows if len(row) > 1)


def _hexadecimal(digest: str) -> str:
    """Return sha256=<URL-safe base64> as hexadecimal digits. Another algorithm matches nothing."""
    algorithm, _, value = digest.partition("=")
    return base64.urlsafe_b64decode(f"{value}==").hex() if algorithm == "sha256" else algorithm
