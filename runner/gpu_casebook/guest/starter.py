"""usage: python3 run.py [BUNDLE] [OPTION]...

Runs the cases of a bundle on a host without a network, and writes one file to bring back. First its parts are put
together, unpacked and verified. The same command goes on with a run that was interrupted or killed.

BUNDLE is its directory, archive or parts. Without it: where this file is.

  --case NAME           only this case, or a pattern; once for each
  --environment NAME    only environments of this name, or a pattern
  --gpu N[,N]           which GPUs, by index
  --trials N            trials of each variant
  --timeout DURATION    for one trial: 90s, 2m
  --engine NAME         run the packed images by another engine, such as charliecloud
  --image NAME          run in this image of the host's
  --no-probes           do not look at the failure with instruments afterwards
  --max-age DURATION    how old evidence of an earlier run may be to be taken instead; 0 runs all again
  --output FILE         the file to bring back; without it: beside the bundle
"""

# A bundle carries this file as run.py, and beside the parts of a split one lies a copy. It stands alone, with the
# standard library and nothing else, and older Pythons can read it too, if only to say that they are too old.

from __future__ import annotations

import hashlib
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
from typing import Any, Iterable, Iterator, Sequence  # noqa: UP035 this must be read by older Pythons

NAME = "casebook-bundle"
LIST = "bundle.json"
PARTS = ".parts.json"
RUN = ".run.py"  # how the name of a copy of this file ends that lies beside the parts of an archive
SCHEMA = 2
OLDEST = (3, 11)

_BLOCK = 2**18
_PART = re.compile(r"\.\d+of\d+$")


class Wrong(Exception):  # noqa: N818 a mistake of a copy or of a call, not of this program
    """The bundle can't be run as it is; the message is one line that says why and what to do."""


def main(words: Sequence[str]) -> int:
    """Run a bundle; return the exit status, which is 1, with a message on stderr, if it can't be run.

    `words` name the bundle's directory, archive or parts, unless they are where this file is; then come the options of
    `casebook bundle-run`.
    """
    if "--help" in words:
        print(__doc__.strip())
        return 0
    count = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    paths, options = [Path(word) for word in words[:count]], words[count:]
    try:
        _check_python()
        home = opened(paths or [_beside(Path(__file__).resolve())]).resolve()
        _make_importable(home, options)
    except (Wrong, OSError) as error:
        reason = f"{error.filename or 'the bundle'}: {error.strerror or error}" if isinstance(error, OSError) else error
        print(f"casebook: {reason}", file=sys.stderr)
        return 1
    sys.argv = ["casebook", "bundle-run", str(home), *options]
    runpy.run_module("gpu_casebook", run_name="__main__")
    return 0


def _check_python() -> None:
    if sys.version_info < OLDEST:
        raise Wrong(f"Python {_dotted(OLDEST)} or newer is needed, and this is {_dotted(sys.version_info[:3])}")


def _beside(me: Path) -> Path:
    """Return the bundle that this file belongs to."""
    if me.name.endswith(RUN):
        return me.with_name(me.name[: -len(RUN)] + PARTS)
    return me.parent


def _dotted(version: Iterable[Any]) -> str:
    return ".".join(map(str, version))


# From files to a directory


def opened(paths: Sequence[Path]) -> Path:
    """Return the bundle's directory, with every member verified. It is unpacked first if need be, beside its archive.

    `paths` is that directory, one that holds an archive or its parts, an archive, or parts. Raises Wrong.
    """
    for path in paths:
        if not path.exists():
            raise Wrong(f"{path}: there is no such file or directory")
    home = _directory(paths[0]) if len(paths) == 1 else None
    if home is None:
        files = _files(paths)
        place = files[0].parent
        home = unpacked(files, place if os.access(place, os.W_OK) else Path.cwd())
    verify(home)
    return home


def _directory(path: Path) -> Path | None:
    """Return where the bundle lies unpacked, if it does: here, or in here unless there are parts of one too."""
    if (path / LIST).is_file():
        return path
    packed = any(path.glob("*" + PARTS))
    return path / NAME if (path / NAME / LIST).is_file() and not packed else None


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the archive, or its parts in order, each verified."""
    first = paths[0]
    if len(paths) == 1 and first.is_dir():
        return _listed(_only([*first.glob("*" + PARTS)] or [*first.glob("*.casebook.tar")], first))
    lists = [path for path in paths if path.name.endswith(PARTS)]
    if not lists and _PART.search(first.name):
        lists = [first.with_name(_PART.sub(PARTS, first.name))]
        if not lists[0].is_file():
            raise Wrong(f"{lists[0]}: is missing; it lists the parts with their hashes")
    return _listed(_only(lists or paths, first.parent))


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
    """Raise Wrong if a file is missing or is not what was packed."""
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
    """Return the file's sha256, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            total.update(block)
    return total.hexdigest()


class _Joined:
    """Files, one after the other, as the one that tarfile reads: it asks for nothing but `read`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._blocks = self._read(paths)

    def _read(self, paths: Sequence[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as file:
                yield from iter(lambda file=file: file.read(_BLOCK), b"")  # type: ignore[misc]

    def read(self, _size: int) -> bytes:
        """Return the next block, of any size: tarfile asks again if it wants more, and keeps what is left over."""
        return next(self._blocks, b"")


def unpacked(files: Sequence[Path], place: Path) -> Path:
    """Return the bundle's directory in `place`. Raises Wrong for what is no bundle, and if another one is there."""
    home, partial = place / NAME, Path(tempfile.mkdtemp(prefix=f".{NAME}.", dir=str(place)))
    old, new = home / LIST, partial / NAME / LIST
    try:
        _extract(files, partial)
        if not home.exists():
            (partial / NAME).rename(home)
        elif not old.is_file() or old.read_bytes() != new.read_bytes():
            raise Wrong(f"{home}: is of another bundle; move it away")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return home


def _extract(files: Sequence[Path], into: Path) -> None:
    shown = files[0]
    joined: Any = _Joined(files)
    try:
        with tarfile.open(fileobj=joined, mode="r|") as archive:
            for member in archive:
                _place(archive, member, into, shown)
    except (tarfile.TarError, EOFError):
        raise Wrong(f"{shown}: is damaged or no bundle: it can't be unpacked; copy it again") from None
    if not (into / NAME / LIST).is_file():
        raise Wrong(f"{shown}: is no bundle: it has no {NAME}/{LIST}")


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, shown: Path) -> None:
    """Extract a member: only plain files, and only below `into`."""
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
    """Return bundle.json, if every file that it lists is as packed. Raises Wrong for the first that is not."""
    listed = _json(home / LIST)
    if listed.get("schema_version") != SCHEMA:
        raise Wrong(f"{home / LIST}: schema_version {listed.get('schema_version')!r}, and this run.py knows {SCHEMA}")
    members = listed.get("members")
    if not isinstance(members, dict) or not all(map(_inside, members)):
        raise Wrong(f"{home / LIST}: is damaged; copy the bundle again")
    for name, facts in members.items():
        _check(home / name, facts["size"], facts["sha256"], f"{home.name}/{name}")
    return listed


# From the directory to a runner


def _make_importable(home: Path, options: Sequence[str]) -> None:
    """Have the runner and its wheels found before anything of the host's; or start another Python that can run them."""
    pythons = _json(home / LIST)["pythons"]
    version = _dotted(sys.version_info[:2])
    if version not in pythons:
        _run_with_another(home, pythons, options)
    site = make_site(home, pythons[version])
    places = [str(home / "checkout" / "runner"), str(site)]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join(places)  # for the workers of a run
    os.environ["PATH"] = f"{site / 'bin'}:{os.environ.get('PATH', os.defpath)}"


def _run_with_another(home: Path, pythons: Iterable[str], options: Sequence[str]) -> None:
    for version in pythons:
        program = shutil.which(f"python{version}")
        if program:
            os.execv(program, [program, str(home / "run.py"), *options])  # noqa: S606
    wanted = " or ".join(pythons)
    here = _dotted(sys.version_info[:2])
    raise Wrong(f"the bundle's runner is for Python {wanted}, and this is {here}; pack it with --python {here}")


def make_site(home: Path, wheels: Sequence[str]) -> Path:
    """Return a directory to import from: the wheels, unzipped. It is made once."""
    key = hashlib.sha256("\n".join(wheels).encode()).hexdigest()[:8]
    place = home if os.access(home, os.W_OK) else Path(tempfile.gettempdir())
    site = place / f"site-{_dotted(sys.version_info[:2])}-{key}"
    if not site.is_dir():
        partial = Path(tempfile.mkdtemp(prefix=".site.", dir=str(place)))
        for wheel in wheels:
            with zipfile.ZipFile(home / wheel) as archive:
                archive.extractall(partial)  # noqa: S202 it keeps all names inside
        _place_data(partial)
        partial.chmod(0o755)
        partial.rename(site)
    return site


def _place_data(site: Path) -> None:
    """Put what wheels have in directories of their own where it belongs, but nothing that the runner does not use."""
    for data in site.glob("*.data"):
        for kind, place in (("scripts", "bin"), ("purelib", ""), ("platlib", "")):
            if (data / kind).is_dir():
                shutil.copytree(data / kind, site / place, dirs_exist_ok=True)
        shutil.rmtree(data)
    for program in site.glob("bin/*"):
        program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
