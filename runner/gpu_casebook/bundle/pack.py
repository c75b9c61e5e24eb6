"""Case + environment + runner -> one archive.

The same input gives the same bytes, and nothing in it tells of this machine.
"""

import gzip
import hashlib
import os
import stat
import sys
import tarfile
import tempfile
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from gpu_casebook.bundle import wheels
from gpu_casebook.bundle.document import Bundle, Image, Member
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import ImageFacts, Variant
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import CHECKOUT, PACKED, own_revision
from gpu_casebook.run.plan import recipe
from gpu_casebook.trial import EngineName, Note
from gpu_casebook.words import size

SUFFIX = ".casebook.tar"
IMAGES = "images.tar.gz"
LOCKED = "locked"
WHEELS = "wheels"

THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_PATIENCE_S = 3600
"""The engine is silent while it gathers gigabytes."""
_EPOCH = 315532800
"""1980: the earliest time that zip archives know too."""
_PIECE = 16 * 2**20
_LEVEL = 1
"""Of an image of 452 MB, on one core: gzip -1 34 % at 97 MB/s, gzip -6 30 % at 17 MB/s, xz -0 25 % at 12 MB/s,
xz -1 23 % at 7 MB/s; and xz takes three times as long to unpack. All in all gzip -1 is sooner there unless the way is
slower than 1.5 MB/s. Wheels are compressed already, so the archive itself is plain."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for. `image` is the name of an image that the host has: none is packed then."""

    case: Case
    environment: str
    engine: EngineName
    image: str | None = None
    pythons: Sequence[str] = ()


@dataclass(frozen=True)
class Saved:
    """Images for trials, and one archive of them all in pieces."""

    images: Sequence[ImageFacts]
    pieces: Iterable[bytes]


def saved_images(root: Path, wish: Wish, opened: ExitStack, note: Note) -> Saved:
    """The images of the case's variants, built where they are not there yet. `opened` closes the engine's connection.

    Raises what building images raises.
    """
    from gpu_casebook.daemon.client import connect, save  # noqa: PLC0415 the SDK takes a quarter of a second to import
    from gpu_casebook.images.build import build_all  # noqa: PLC0415

    client = connect(_PATIENCE_S)
    opened.callback(client.close)
    images = build_all(client, root, [recipe(wish.case, wish.environment, variant) for variant in Variant], note)
    return Saved(images, save(client, [image.name for image in images]))


def pack(root: Path, wish: Wish, saved: Saved | None, into: Path, note: Note) -> Bundle:
    """Write the archive `into`, whole or not at all. `saved` has the images where those are packed.

    Raises UsageError, ManifestError where there is no lock, BuildError where wheels can't be had.
    """
    case, spec = wish.case, wish.case.environment(wish.environment)
    locks = _locks(case, wish.environment)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=into.parent) as scratch:
        stage = Path(scratch)
        files = _checkout(root, case)
        pythons = _runner_wheels(wish, stage, note)
        if wish.engine is EngineName.VENV:
            for lock in locks:
                wheels.download_lock(lock, spec.python, stage / LOCKED, note)
        if saved:
            squeeze(saved.pieces, stage / IMAGES, note)
        files |= {f"{path.relative_to(stage).as_posix()}": path for path in sorted(stage.rglob("*")) if path.is_file()}
        bundle = _bundle(wish, saved, pythons, files)
        _write(bundle, files, into)
    return bundle


def _locks(case: Case, environment: str) -> list[Path]:
    for variant in Variant:
        recipe(case, environment, variant)
    return list(dict.fromkeys(case.lock_path(environment, variant) for variant in Variant))


def _checkout(root: Path, case: Case) -> dict[str, Path | bytes]:
    """What the runner finds there as its checkout: this one case, the images, and the runner itself."""
    code = CHECKOUT / "runner"
    parts = {f"cases/{case.id}": case.directory, "images": root / "images", "runner": code}
    files: dict[str, Path | bytes] = {
        f"checkout/{name}/{inner}": path for name, top in parts.items() for inner, path in _files(top)
    }
    files[f"checkout/runner/{PACKED}"] = f"{own_revision()}\n".encode()
    files["run.py"] = Path(starter.__file__)
    return files


def _files(top: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(top.rglob("*")):
        relative = path.relative_to(top)
        if path.is_file() and "__pycache__" not in relative.parts:
            yield relative.as_posix(), path


def _runner_wheels(wish: Wish, stage: Path, note: Note) -> dict[str, list[str]]:
    """For each Python, the wheels; uv only where there will be something to install."""
    left_out = "uv" if wish.engine is EngineName.DOCKER else ""
    roots = [each for each in _dependencies() if wheels.name_of(each) != left_out]
    found = {}
    for python in wish.pythons:
        pins = wheels.runner_pins(roots, python)
        with tempfile.TemporaryDirectory(dir=stage) as apart:
            fetched = wheels.download_pins(pins, python, Path(apart), note)
            found[python] = [f"{WHEELS}/{_moved(path, stage / WHEELS)}" for path in fetched]
    return found


def _dependencies() -> list[str]:
    path = CHECKOUT / "pyproject.toml"
    try:
        return list(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"])
    except FileNotFoundError:
        raise UsageError("this runner can't pack itself: it is not in a checkout of Casebook") from None


def _moved(path: Path, into: Path) -> str:
    """Most wheels fit every Python, and are there already."""
    into.mkdir(exist_ok=True)
    path.replace(into / path.name)
    return path.name


def squeeze(pieces: Iterable[bytes], into: Path, note: Note) -> None:
    """Compress by gzip on all cores, in blocks of their own: any reader of .gz takes them as one file."""
    done, waiting = 0, deque[Future[bytes]]()
    with into.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        for block in _blocks(pieces):
            waiting.append(pool.submit(gzip.compress, block, _LEVEL, mtime=0))
            done += len(block)
            note(f"compressing the images: {size(done)}")
            if len(waiting) > 2 * (os.cpu_count() or 1):
                file.write(waiting.popleft().result())
        for each in waiting:
            file.write(each.result())


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for piece in pieces:
        block += piece
        while len(block) >= _PIECE:
            yield bytes(block[:_PIECE])
            del block[:_PIECE]
    if block:
        yield bytes(block)


def _bundle(
    wish: Wish, saved: Saved | None, pythons: dict[str, list[str]], files: Mapping[str, Path | bytes]
) -> Bundle:
    spec = wish.case.environment(wish.environment)
    images = [Image(name=image.name, id=image.id) for image in saved.images] if saved else []
    return Bundle(
        case=wish.case.id,
        title=wish.case.manifest.title,
        environment=wish.environment,
        engine=wish.engine,
        python=spec.python,
        images=[Image(name=wish.image)] if wish.image else images,
        case_digest=wish.case.digest(),
        runner=own_revision(),
        pythons=pythons,
        members={name: _member(source) for name, source in sorted(files.items())},
    )


def _member(source: Path | bytes) -> Member:
    if isinstance(source, bytes):
        return Member(size=len(source), sha256=hashlib.sha256(source).hexdigest())
    return Member(size=source.stat().st_size, sha256=starter.digest_of(source))


def _write(bundle: Bundle, files: Mapping[str, Path | bytes], into: Path) -> None:
    partial = into.with_name(f".{into.name}.partial")
    try:
        with tarfile.open(partial, "w") as archive:
            _add(archive, starter.LIST, bundle.text().encode())
            for name in sorted(files, key=lambda name: (name != "run.py", name)):
                _add(archive, name, files[name])
        partial.replace(into)
    finally:
        partial.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, source: Path | bytes) -> None:
    """With nothing of this machine: no owner, no time, no mode but whether it can be run."""
    entry = tarfile.TarInfo(f"{starter.NAME}/{name}")
    entry.mtime = _EPOCH
    if isinstance(source, bytes):
        _put(archive, entry, BytesIO(source), len(source))
        return
    found = source.stat()
    entry.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    with source.open("rb") as file:
        _put(archive, entry, file, found.st_size)


def _put(archive: tarfile.TarFile, entry: tarfile.TarInfo, file: IO[bytes], size: int) -> None:
    entry.size = size
    archive.addfile(entry, file)
