"""Case + environment + runner -> one archive.

The same input gives the same bytes, and nothing in it tells of this machine.
"""

import hashlib
import stat
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from gpu_casebook.bundle.document import Bundle, Image, Member
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import ImageFacts, Variant
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages import wheels
from gpu_casebook.revision import CHECKOUT, PACKED, own_revision
from gpu_casebook.run.plan import recipe
from gpu_casebook.trial import Note, Recipe

SUFFIX = ".casebook.tar"
WHEELS = "wheels"

THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_EPOCH = 315532800
"""1980: the earliest time that zip archives know too."""


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """What to pack."""

    case: Case
    environment: str
    engine: str
    image: str | None = None  # the name of an image that the host has: none is packed then
    pythons: Sequence[str] = ()


def pack(root: Path, options: PackOptions, engine: Engine | None, into: Path, note: Note) -> Bundle:
    """Write the archive `into`, whole or not at all. `engine` packs its environments; None where the host has them.

    Raises UsageError, ManifestError where there is no lock, BuildError where wheels can't be had, and what preparing
    an environment raises.
    """
    recipes = _recipes(options.case, options.environment)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=into.parent) as scratch:
        stage = Path(scratch)
        files = _checkout(root, options.case)
        pythons = _runner_wheels(options, stage, note)
        images = engine.pack(recipes, stage, note) if engine else ()
        files |= {f"{path.relative_to(stage).as_posix()}": path for path in sorted(stage.rglob("*")) if path.is_file()}
        bundle = _bundle(options, images, pythons, files)
        _write(bundle, files, into)
    return bundle


def _recipes(case: Case, environment: str) -> dict[str, Recipe]:
    """By the names of their locks."""
    return {case.lock_path(environment, variant).name: recipe(case, environment, variant) for variant in Variant}


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


def _runner_wheels(options: PackOptions, stage: Path, note: Note) -> dict[str, list[str]]:
    """For each Python, the wheels; uv only where there will be something to install."""
    left_out = "" if registry.kind(options.engine).uses_host_python else "uv"
    roots = [each for each in _dependencies() if wheels.name_of(each) != left_out]
    found = {}
    for python in options.pythons:
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


def _bundle(
    options: PackOptions, packed: Sequence[ImageFacts], pythons: dict[str, list[str]], files: Mapping[str, Path | bytes]
) -> Bundle:
    spec = options.case.environment(options.environment)
    images = [Image(name=image.name, id=image.id) for image in packed]
    return Bundle(
        case=options.case.id,
        title=options.case.manifest.title,
        environment=options.environment,
        engine=options.engine,
        python=spec.python,
        images=[Image(name=options.image)] if options.image else images,
        case_digest=options.case.digest(),
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
