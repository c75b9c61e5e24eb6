"""Cases + environments + runner -> one archive.

The same input gives the same bytes (but for the order of several images, which is their engine's), and nothing in it
tells of this machine.
"""

import stat
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from casebook_workbench.bundle.document import Bundle, Image, Member
from casebook_workbench.corpus.model import Job, JobName
from casebook_workbench.corpus.selection import Selection, select
from failure_signature.kinds import Variant
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import Case, find, known_images
from gpu_casebook.packages import wheels
from gpu_casebook.places import images_of
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

    jobs: Sequence[Job]
    engine: str
    image: str | None = None  # the name of an image that the host has: none is packed then
    pythons: Sequence[str] = ()
    host_has: Collection[str] = ()  # keys of layers


def chosen(root: Path, selection: Selection) -> list[Job]:
    """Return the jobs to pack: of each case those in the environments that are named, or else in its first one.

    Raises UsageError for a selection of nothing, CasebookError for a manifest that is wrong.
    """
    jobs, ended = select(root, selection)
    for each in ended:
        raise CasebookError(f"{each.job.case}: {each.reason}")
    return jobs if selection.environment else list({job.case: job for job in reversed(jobs)}.values())[::-1]


def pack(root: Path, options: PackOptions, engine: Engine | None, into: Path, note: Note) -> Bundle:
    """Write the archive `into`, whole or not at all. `engine` packs the environments; None if the host has them.

    Raises UsageError, ManifestError where there is no lock, BuildError where wheels can't be had, and what preparing
    an environment raises.
    """
    known = known_images(root)
    cases = {job.case: find(root, job.case, known) for job in options.jobs}
    recipes = _recipes([(cases[job.case], job.environment) for job in options.jobs])
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=into.parent) as scratch:
        stage, archive = Path(scratch, "stage"), Path(scratch, "archive")
        stage.mkdir()
        needs = sorted({each.python for each in recipes.values()})
        images = [Image(name=options.image)] if options.image else []
        with ThreadPoolExecutor() as pool:  # the network is waited for meanwhile
            fetching = pool.submit(_runner_wheels, options, needs, stage, note)
            if engine:
                packed = engine.pack(recipes, stage, note, options.host_has)
                images = [Image(name=each.name, id=each.id, layers=list(layers)) for each, layers in packed]
            pythons = fetching.result()
        revision = stage / "checkout" / "runner" / PACKED
        revision.parent.mkdir(parents=True)
        revision.write_text(f"{own_revision()}\n", encoding="utf-8")
        files = _checkout(root, cases.values()) | _files(stage) | {"run.py": Path(starter.__file__)}
        bundle = Bundle(
            jobs=[JobName(case=job.case, environment=job.environment) for job in options.jobs],
            engine=options.engine,
            images=images,
            left_out=any(layer in options.host_has for image in images for layer in image.layers),
            digests={id_: case.digest() for id_, case in cases.items()},
            needs=needs,
            runner=own_revision(),
            pythons=pythons,
            members={name: Member.of(path) for name, path in sorted(files.items())},
        )
        bundle.write(stage / starter.LIST)
        _write(files | {starter.LIST: stage / starter.LIST}, archive)
        archive.replace(into)
    return bundle


def _recipes(environments: Iterable[tuple[Case, str]]) -> dict[str, Recipe]:
    """Return what both variants run in, each once, by the first lock that asks for it."""
    names: dict[Recipe, str] = {}
    for case, environment in environments:
        for variant in Variant:
            name = f"{case.id}.{case.lock_path(environment, variant).name}"
            names.setdefault(recipe(case, environment, variant), name)
    return {name: each for each, name in names.items()}


def _checkout(root: Path, cases: Iterable[Case]) -> dict[str, Path]:
    """Return the files of the runner's checkout on the host: these cases, the images, and the runner itself."""
    parts = {"images": images_of(root), "runner": CHECKOUT / "runner"}
    parts |= {f"cases/{case.id}": case.directory for case in cases}
    files = {f"checkout/{name}/{inner}": path for name, top in parts.items() for inner, path in _files(top).items()}
    return files | {"checkout/pyproject.toml": CHECKOUT / "pyproject.toml"}  # it says which verbs there are


def _files(top: Path) -> dict[str, Path]:
    """Return every file in `top` by its path in there, without compiled Python."""
    found = {path.relative_to(top): path for path in top.rglob("*") if path.is_file()}
    return {inner.as_posix(): path for inner, path in found.items() if "__pycache__" not in inner.parts}


def _runner_wheels(options: PackOptions, needs: Sequence[str], stage: Path, note: Note) -> dict[str, list[str]]:
    """Return the runner's wheels for each Python. uv is one of them only if the host has something to install."""
    installs = registry.kind(options.engine).uses_host_python
    left_out = "" if installs else "uv"
    ours = [each for each in needs if installs and tuple(map(int, each.split("."))) >= starter.OLDEST]
    roots = [each for each in _dependencies() if wheels.name_of(each) != left_out]
    (stage / WHEELS).mkdir()
    found = {}
    for python in options.pythons or ours or [THIS_PYTHON]:
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
