"""Case + environment + runner -> one archive.

The same input gives the same bytes, and nothing in it tells of this machine.
"""

import stat
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_casebook.bundle.document import Bundle, Image, Member
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import UsageError
from gpu_casebook.guest import starter
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.packages import wheels
from gpu_casebook.revision import CHECKOUT, PACKED, own_revision
from gpu_casebook.run.plan import recipe
from gpu_casebook.trial import Note

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
    """Write the archive `into`, whole or not at all. `engine` packs the environments; None if the host has them.

    Raises UsageError, ManifestError where there is no lock, BuildError where wheels can't be had, and what preparing
    an environment raises.
    """
    case, environment = options.case, options.environment
    recipes = {case.lock_path(environment, variant).name: recipe(case, environment, variant) for variant in Variant}
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=into.parent) as scratch:
        stage, archive = Path(scratch, "stage"), Path(scratch, "archive")
        stage.mkdir()
        pythons = _runner_wheels(options, stage, note)
        images = [Image(name=options.image)] if options.image else []
        if engine:
            images = [Image(name=each.name, id=each.id) for each in engine.pack(recipes, stage, note)]
        revision = stage / "checkout" / "runner" / PACKED
        revision.parent.mkdir(parents=True)
        revision.write_text(f"{own_revision()}\n", encoding="utf-8")
        files = _checkout(root, case) | _files(stage) | {"run.py": Path(starter.__file__)}
        bundle = Bundle(
            case=case.id,
            title=case.manifest.title,
            environment=environment,
            engine=options.engine,
            python=case.environment(environment).python,
            images=images,
            case_digest=case.digest(),
            runner=own_revision(),
            pythons=pythons,
            members={name: Member.of(path) for name, path in sorted(files.items())},
        )
        bundle.write(stage / starter.LIST)
        _write(files | {starter.LIST: stage / starter.LIST}, archive)
        archive.replace(into)
    return bundle


def _checkout(root: Path, case: Case) -> dict[str, Path]:
    """Return the files of the runner's checkout on the host: this one case, the images, and the runner itself."""
    parts = {f"cases/{case.id}": case.directory, "images": root / "images", "runner": CHECKOUT / "runner"}
    return {f"checkout/{name}/{inner}": path for name, top in parts.items() for inner, path in _files(top).items()}


def _files(top: Path) -> dict[str, Path]:
    """Return every file in `top` by its path in there, without compiled Python."""
    found = {path.relative_to(top): path for path in top.rglob("*") if path.is_file()}
    return {inner.as_posix(): path for inner, path in found.items() if "__pycache__" not in inner.parts}


def _runner_wheels(options: PackOptions, stage: Path, note: Note) -> dict[str, list[str]]:
    """Return the runner's wheels for each Python. uv is one of them only if the host has something to install."""
    left_out = "" if registry.kind(options.engine).uses_host_python else "uv"
    roots = [each for each in _dependencies() if wheels.name_of(each) != left_out]
    (stage / WHEELS).mkdir()
    found = {}
    for python in options.pythons:
        pins = wheels.runner_pins(roots, python)
        with tempfile.TemporaryDirectory(dir=stage) as apart:
            fetched = wheels.download_pins(pins, python, Path(apart), note)
            for path in fetched:  # most wheels fit every Python, and are there already
                path.replace(stage / WHEELS / path.name)
        found[python] = [f"{WHEELS}/{path.name}" for path in fetched]
    return found


def _dependencies() -> list[str]:
    path = CHECKOUT / "pyproject.toml"
    try:
        return list(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"])
    except FileNotFoundError:
        raise UsageError("this runner can't pack itself: it is not in a checkout of Casebook") from None


def _write(files: Mapping[str, Path], into: Path) -> None:
    # Links become what they point to, hard links too: the starter unpacks nothing but plain files.
    with tarfile.open(into, "w", dereference=True) as archive:
        for name in sorted(files):
            archive.add(files[name], f"{starter.NAME}/{name}", filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave nothing of this machine in it: no owner, no time, no mode but whether it can be run."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _EPOCH
    entry.mode = 0o755 if entry.mode & stat.S_IXUSR else 0o644
    return entry
