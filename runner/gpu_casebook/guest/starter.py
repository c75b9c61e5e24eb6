"""Runs a bundle on a host that has Python and nothing else, and no network: put together, unpack, verify, run.

A bundle carries this file as run.py, and beside the parts of a split one lies a copy. It must do alone, with the
standard library, and be read by older Pythons too, if only so that those say what they lack.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import runpy
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, Iterable, Sequence  # noqa: UP035 this must be read by older Pythons

NAME = "casebook-bundle"
LIST = "bundle.json"
PARTS = ".parts.json"
RUN = ".run.py"
"""What a copy of this file is called that lies beside the parts of an archive."""
SCHEMA = 1
OLDEST = (3, 11)

_BLOCK = 2**20


class Wrong(Exception):  # noqa: N818 it is read aloud as `raise Wrong`
    """The bundle can't be run as it is; the message is one line that says why and what to do."""


def main(words: Sequence[str]) -> int:
    """`words`: the bundle's directory, archive or parts, unless they are where this file is; then bundle-run's options.

    A message on stderr and 1 where the bundle can't be run.
    """
    try:
        _check_python()
        paths, options = _paths(words)
        home = _prepared(paths or [_beside(Path(__file__).resolve())], options)
    except Wrong as error:
        print(f"casebook: {error}", file=sys.stderr)
        return 1
    return _run(home, options)


def _prepared(paths: Sequence[Path], options: Sequence[str]) -> Path:
    """The bundle's directory, its runner importable from here on. Raises Wrong."""
    try:
        home = opened(paths).resolve()
        _make_importable(home, options)
    except OSError as error:
        raise Wrong(f"{error.filename or 'the bundle'}: {error.strerror or error}") from error
    return home


def _check_python() -> None:
    if sys.version_info < OLDEST:
        raise Wrong(f"Python {_dotted(OLDEST)} or newer is needed, and this is {_dotted(sys.version_info[:3])}")


def _beside(me: Path) -> Path:
    """The bundle that this file belongs to."""
    if me.name.endswith(RUN):
        return me.with_name(me.name[: -len(RUN)] + PARTS)
    return me.parent


def _dotted(version: Iterable[Any]) -> str:
    return ".".join(map(str, version))


def _paths(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The words up to the first option, which are files or directories, and the rest."""
    count = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    return [Path(word) for word in words[:count]], list(words[count:])


# From files to a directory


def opened(paths: Sequence[Path]) -> Path:
    """The bundle's directory, every member of it verified; unpacked beside its archive, or here, where it is not yet.

    `paths` is that directory, one that holds an archive or its parts, an archive, or parts. Raises Wrong.
    """
    for path in paths:
        if not path.exists():
            raise Wrong(f"{path}: there is no such file or directory")
    home = _directory(paths[0]) if len(paths) == 1 else None
    if home is None:
        files = _files(paths)
        home = unpacked(files, _writable(files[0].parent))
    verify(home)
    return home


def _directory(path: Path) -> Path | None:
    """Where the bundle lies unpacked, if it does: here, or in here; but what lies packed in here counts more."""
    if not path.is_dir():
        return None
    if (path / LIST).is_file():
        return path
    packed = any(path.glob("*" + PARTS))
    return path / NAME if (path / NAME / LIST).is_file() and not packed else None


def _files(paths: Sequence[Path]) -> list[Path]:
    """The archive, or its parts in order, each verified."""
    if len(paths) == 1 and paths[0].is_dir():
        return _listed(_only([*paths[0].glob("*" + PARTS)] or [*paths[0].glob("*.casebook.tar")], paths[0]))
    lists = [path for path in paths if path.name.endswith(PARTS)]
    if not lists and _is_part(paths[0]):
        lists = [paths[0].with_name(re.sub(r"\.\d+of\d+$", PARTS, paths[0].name))]
        if not lists[0].is_file():
            raise Wrong(f"{lists[0]}: is missing; it lists the parts with their hashes")
    return _listed(_only(lists or list(paths), paths[0].parent))


def _is_part(path: Path) -> bool:
    return re.search(r"\.\d+of\d+$", path.name) is not None


def _only(found: Sequence[Path], where: Path) -> Path:
    if not found:
        raise Wrong(f"{where}: there is no bundle here: no {LIST}, no *{PARTS}, no *.casebook.tar")
    if len(found) > 1:
        raise Wrong(f"{where}: there are several bundles here; name one: {', '.join(sorted(p.name for p in found))}")
    return found[0]


def _listed(path: Path) -> list[Path]:
    if not path.name.endswith(PARTS):
        return [path]
    table = _json(path)
    try:
        parts = [(path.with_name(part["name"]), part["size"], part["sha256"]) for part in table["parts"]]
    except (KeyError, TypeError, ValueError):
        raise Wrong(f"{path}: is not a list of parts; copy it again") from None
    for part, size, sha256 in parts:
        _check(part, size, sha256, str(part))
    return [part for part, _, _ in parts]


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        data = None
    if not isinstance(data, dict):
        raise Wrong(f"{path}: is damaged; copy it again")
    return data


def _check(path: Path, size: int, sha256: str, shown: str) -> None:
    """Raises Wrong where a file is missing or is not what was packed."""
    try:
        found = path.stat().st_size
        if found != size:
            raise Wrong(f"{shown}: is damaged: {found} bytes, and {size} were packed; copy it again")
        if digest_of(path) != sha256:
            raise Wrong(f"{shown}: is damaged: its sha256 is not the one that was packed; copy it again")
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"can't be read: {error.strerror}"
        raise Wrong(f"{shown}: {what}; copy it again") from None


def digest_of(path: Path) -> str:
    """sha256, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            total.update(block)
    return total.hexdigest()


class _Joined(io.RawIOBase):
    """Files, one after the other, as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self._left = list(paths)
        self._file: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            count = self._file.readinto(buffer) if self._file else 0
            if count or not self._left:
                return int(count)
            self.close_file()
            self._file = self._left.pop(0).open("rb")

    def close_file(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.close_file()
        super().close()


def _writable(place: Path) -> Path:
    return place if os.access(place, os.W_OK) else Path.cwd()


def unpacked(files: Sequence[Path], place: Path) -> Path:
    """The bundle's directory in `place`. Raises Wrong for what is no bundle, and where another bundle lies there."""
    home, partial = place / NAME, Path(tempfile.mkdtemp(prefix=f".{NAME}.", dir=str(place)))
    try:
        _extract(files, partial)
        if not home.exists():
            (partial / NAME).rename(home)
        elif not _same(home / LIST, partial / NAME / LIST):
            raise Wrong(f"{home}: is of another bundle; move it away")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return home


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and one.read_bytes() == other.read_bytes()


def _extract(files: Sequence[Path], into: Path) -> None:
    shown = files[0]
    try:
        with _Joined(files) as joined, tarfile.open(fileobj=io.BufferedReader(joined, _BLOCK), mode="r|") as archive:
            for member in archive:
                _place(archive, member, into, shown)
    except (tarfile.TarError, EOFError):
        raise Wrong(f"{shown}: is damaged or no bundle: it can't be unpacked; copy it again") from None
    if not (into / NAME / LIST).is_file():
        raise Wrong(f"{shown}: is no bundle: it has no {NAME}/{LIST}")


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, shown: Path) -> None:
    """Only plain files, and only inside."""
    source = archive.extractfile(member) if member.isreg() else None
    if source is None or not _inside(member.name) or not member.name.startswith(NAME + "/"):
        raise Wrong(f"{shown}: is no bundle: {member.name!r} does not belong in one")
    path = into / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(source, file, _BLOCK)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name


def verify(home: Path) -> dict[str, Any]:
    """bundle.json, after a look at every file that it lists. Raises Wrong for the first that is not as packed."""
    listed = contents(home)
    members = listed.get("members")
    if not isinstance(members, dict) or not all(map(_inside, members)):
        raise Wrong(f"{home / LIST}: is damaged; copy the bundle again")
    for name, facts in members.items():
        _check(home / name, facts["size"], facts["sha256"], f"{home.name}/{name}")
    return listed


def contents(home: Path) -> dict[str, Any]:
    """bundle.json. Raises Wrong where it is damaged, or of another time."""
    listed = _json(home / LIST)
    if listed.get("schema_version") != SCHEMA:
        raise Wrong(f"{home / LIST}: schema_version {listed.get('schema_version')!r}, and this run.py knows {SCHEMA}")
    return listed


# From the directory to a runner


def _run(home: Path, options: Sequence[str]) -> int:
    sys.argv = ["casebook", "bundle-run", str(home), *options]
    runpy.run_module("gpu_casebook", run_name="__main__")
    return 0


def _make_importable(home: Path, options: Sequence[str]) -> None:
    pythons = contents(home)["pythons"]
    version = _dotted(sys.version_info[:2])
    if version not in pythons:
        _run_with_another(home, pythons, options)
    _take_in(home / "checkout", make_site(home, pythons[version]))


def _run_with_another(home: Path, pythons: Iterable[str], options: Sequence[str]) -> None:
    for version in pythons:
        program = shutil.which(f"python{version}")
        if program:
            os.execv(program, [program, str(home / "run.py"), *options])  # noqa: S606
    wanted = " or ".join(pythons)
    here = _dotted(sys.version_info[:2])
    raise Wrong(f"the bundle's runner is for Python {wanted}, and this is {here}; pack it with --python {here}")


def _take_in(checkout: Path, site: Path) -> None:
    """Make the runner and what it needs importable, before anything of the host's, and its programs found."""
    sys.path[:0] = [str(checkout / "runner"), str(site)]
    os.environ["PATH"] = f"{site / 'bin'}:{os.environ.get('PATH', os.defpath)}"


def make_site(home: Path, wheels: Sequence[str]) -> Path:
    """A directory to import from: the wheels, unzipped. Made once."""
    key = hashlib.sha256("\n".join(wheels).encode()).hexdigest()[:8]
    place = home if os.access(home, os.W_OK) else Path(tempfile.gettempdir())
    site = place / f"site-{_dotted(sys.version_info[:2])}-{key}"
    if not site.is_dir():
        partial = Path(tempfile.mkdtemp(prefix=".site.", dir=str(place)))
        for wheel in wheels:
            _unzip(home / wheel, partial)
        partial.chmod(0o755)
        partial.rename(site)
    return site


def _unzip(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = _installed_as(entry.filename)
            if name is None or entry.is_dir():
                continue
            if not _inside(name):
                raise Wrong(f"{wheel.name}: {entry.filename!r} does not belong in a wheel")
            path = site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(entry))
            if name.startswith("bin/"):
                path.chmod(0o755)


def _installed_as(name: str) -> str | None:
    """Where a wheel's file belongs; None for what the runner has no use for: headers, manual pages."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, inner = rest.partition("/")
    return {"scripts": f"bin/{inner}", "purelib": inner, "platlib": inner}.get(kind)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
