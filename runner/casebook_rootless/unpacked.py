"""Trials in images that were unpacked to directories, run as the user by a program that needs no daemon.

Images are built where Docker or Podman is. An archive of them comes here in a bundle, or as what `docker save` wrote,
laid into the store; each image in it is unpacked there once. What the runtime does not bound, the supervisor does.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from platformdirs import user_cache_path

from casebook_rootless.archive import UnpackedImage, make_mount_points, unpack, unpacked
from failure_signature.result import CASE_DIRECTORY, TrialResult
from failure_signature.text import path_list
from gpu_casebook.devices.driver import HostFacts, host_facts, passthrough
from gpu_casebook.engines import scratch
from gpu_casebook.engines.base import VARIABLES, Engine, Prepared
from gpu_casebook.engines.docker.packing import IMAGES, decompressed
from gpu_casebook.engines.output import supervised_s
from gpu_casebook.engines.venv import supervised
from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.engines.venv.supervised import NeutralOutput
from gpu_casebook.errors import BuildError, EngineError, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import bases, build
from gpu_casebook.locking import sole
from gpu_casebook.places import images_of
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest

TOOLS = "/casebook"  # where a watched trial has what lets it say where it stands
DRIVER = "/usr/local/nvidia"  # where a trial with GPUs has the driver's files
_PLACES = {"HOME": "/home/case", "TMPDIR": "/tmp"}  # noqa: S108 the trial's own
_NEEDED = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "USER": "case", "HOME": "/"}
"""What the program that runs a trial gets itself."""


class _Unpacked(NamedTuple):
    """What trials run in: where it is, its own variables, and a digest of all its files."""

    root: Path
    variables: Mapping[str, str]
    content: str


class UnpackedEngine(Engine):
    """`root` is the checkout, which has the images' Dockerfiles; `store` has the unpacked images."""

    has_images = True

    title: ClassVar[str]  # as in "Charliecloud 0.31"
    program: ClassVar[str]
    install: ClassVar[str]  # the command that installs it
    complaint: ClassVar[str]  # how each error of the program itself begins

    def __init__(self, root: Path, store: Path | None = None, place: Path | None = None) -> None:
        self._root = root
        self._store = (store or user_cache_path("casebook") / "images").resolve()
        self._place = (place or scratch.usual_place()).resolve()
        self._made: dict[str, _Unpacked] = {}  # by the keys of prepared environments
        self._pythons: dict[str, str] = {}

    @classmethod
    def connect(cls, root: Path) -> Self:
        if not shutil.which(cls.program):
            raise EngineError(f"no {cls.program} on PATH: {cls.install}")
        return cls(root)

    def command(self, image: Path, binds: Mapping[str, Path], gpus: Sequence[int]) -> list[str]:
        """Return the program with its options: what comes after them runs in the image, in the directory of the case.

        `binds` are files and directories of this machine, by their paths in the image.
        """
        raise NotImplementedError

    def driver(self, directory: Path) -> tuple[Mapping[str, Path], Mapping[str, str]]:  # noqa: ARG002
        """Return binds and variables that a trial with GPUs needs besides `command`. `directory` is its scratch."""
        return {}, {}

    @cached_property
    def version(self) -> str:
        said = subprocess.run([self.program, "--version"], env=_NEEDED, capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d\S*", said.stdout + said.stderr)
        return f"{self.title} {found[0] if found else '(of unknown version)'}"

    @property
    def storage(self) -> Path:
        return self._store

    def gpu_access(self) -> GpuAccess | None:
        return passthrough(self._host)

    @cached_property
    def _host(self) -> HostFacts:
        return host_facts()

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        with scratch.disk(self._store), self._alone(note):
            if recipe.use_image and Path(recipe.use_image).is_dir():
                facts, unpacked_to = _site_image(Path(recipe.use_image), note)
            else:
                facts, unpacked_to = self._find(recipe, note)
            key = f"{facts.id} {unpacked_to.content}"
        self._made[key] = unpacked_to
        note(f"looking for the Python of {facts.name}")
        return Prepared(key=key, python=self._python(Prepared(key=key, python="python3", image=facts)), image=facts)

    def _alone(self, note: Note) -> AbstractContextManager[None]:
        return sole(self._store / "images.lock", note, "waiting for another run that unpacks images")

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return build.missing(self._root, recipes, self._summaries())

    def image_id(self, name: str) -> str | None:
        return next((image.id for image in self._images() if name in image.names), None)

    def take_in(self, packed: Path, note: Note) -> None:
        with (
            scratch.disk(self._store),
            self._alone(note),
            tempfile.NamedTemporaryFile(dir=self._store) as file,
        ):
            for piece in decompressed(packed / IMAGES, note):
                file.write(piece)
            file.flush()
            unpack(Path(file.name), self._store)

    def _images(self) -> list[UnpackedImage]:
        return list(filter(None, map(unpacked, self._store.glob("*/"))))

    def _summaries(self) -> dict[str, dict[str, Any]]:
        """Return images as a daemon lists them."""
        return {name: {"Labels": image.labels, "image": image} for image in self._images() for name in image.names}

    def _find(self, recipe: Recipe, note: Note) -> tuple[ImageFacts, _Unpacked]:
        if recipe.use_image:
            name, base, image = recipe.use_image, None, self._named(recipe.use_image, note)
        else:
            name, base, image = self._own(recipe, note)
        directory = self._store / image.id.removeprefix("sha256:")[:16]
        sealed = Seal.read(directory / "root")
        if sealed is None or (changed := sealed.changed()):
            what = ", ".join(changed[:3]) if sealed else "the list of its files"
            raise EngineError(
                f"{name}: changed since it was unpacked: {what}; rm -rf {directory}, and take it in again"
            )
        facts = ImageFacts(name=name, id=image.id, size_bytes=image.size_bytes, base=base)
        return facts, _Unpacked(sealed.directory, image.variables, sealed.content)

    def _own(self, recipe: Recipe, note: Note) -> tuple[str, str, UnpackedImage]:
        """Find the recipe's image by its key, in the store or in an archive that lies there."""
        pin = bases.read_pin(images_of(self._root))
        for archive in (None, *sorted(self._store.glob("*.tar"))):
            if archive:
                note(f"unpacking {archive}")
                unpack(archive, self._store)
            there = self._summaries()
            if stage := build.existing(self._root, recipe, pin, there):
                return stage.reference, stage.base.identity, there[stage.reference]["image"]
        raise BuildError(
            f"{self.title} builds no images, and this environment's ({recipe.image}) is not here; where Docker is: "
            f"nox -s bundle, and here run.py --engine {self.name}; or there: docker save IMAGE >NAME.tar, and here: "
            f"mv NAME.tar {self._store}"
        )

    def _named(self, name: str, note: Note) -> UnpackedImage:
        """Find an image by its name, or unpack the archive of this path, which holds one image."""
        images = [image for image in self._images() if name in image.names]
        if not images and Path(name).is_file():
            note(f"unpacking {name}")
            images = unpack(Path(name), self._store)
        if len(images) != 1:
            raise UsageError(f"--image {name}: no image in {self._store}, no directory, and no archive of one image")
        return images[0]

    def _python(self, prepared: Prepared) -> str:
        """Return the path of the image's python3. Raises UsageError where there is none that runs."""
        if prepared.key not in self._pythons:
            ended = self.run(prepared, TrialRequest(files={}, arguments=["-c", "import sys; print(sys.executable)"]))
            if ended.infra:
                raise EngineError(f"{self.version} can't run a trial: {ended.infra}")
            if ended.exit_status != 0:
                reason = (ended.stderr.strip() or "it said nothing").splitlines()[-1]
                raise UsageError(f"the image has no python3 that runs: {reason}")
            self._pythons[prepared.key] = ended.stdout.strip()
        return self._pythons[prepared.key]

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        image = self._made[prepared.key]
        with scratch.laid_out(self._place, request) as directory:
            output = NeutralOutput(request, {str(directory): "/scratch", str(image.root): ""})
            orders = self._orders(directory, image, prepared.python, request)
            kept = str(directory) if request.keep else None
            result = supervised.run(orders, output, request, engine=self, kept=kept)
            if result.infra:  # its supervisor may have been killed
                scratch.end_processes(directory)
        if result.exit_status and result.stderr.startswith(self.complaint):
            return replace(result, exit_status=None, infra=result.stderr.splitlines()[0])
        return result

    def _orders(self, directory: Path, image: _Unpacked, python: str, request: TrialRequest) -> dict[str, Any]:
        """Return the supervisor's orders, without the file descriptors."""
        places = zip((CASE_DIRECTORY, *_PLACES.values()), scratch.PLACES, strict=True)
        binds = {target: directory / name for target, name in places}
        variables = {**image.variables, **VARIABLES, **request.variables, **_PLACES}
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, request.gpus))
        if request.gpus:
            files, more = self.driver(directory)
            binds |= files
            variables |= {name: path_list(value, variables.get(name)) for name, value in more.items()}
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # indices as the driver counts, not by speed
        if request.watch:
            binds[TOOLS] = directory / "watched"
            variables["PYTHONPATH"] = path_list(TOOLS, variables.get("PYTHONPATH"))
        # Not by options of the program: each has characters of its own that a value may not hold.
        given = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        trial = [*request.wrapper, python, *request.arguments]
        return {
            "command": [*self.command(image.root, binds, request.gpus), *given, *trial],
            "python": python,
            "directory": str(directory / "case"),
            "variables": _NEEDED,
            "timeout_s": supervised_s(request),
            "memory_bytes": request.limits.memory_bytes,
            "processes": request.limits.processes,
            "places": [str(directory / name) for name in scratch.PLACES],
        }

    def end_trials(self) -> None:
        supervised.end_trials(self)

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        return scratch.sweep(self._place, dry_run=dry_run)


def _site_image(root: Path, note: Note) -> tuple[ImageFacts, _Unpacked]:
    """Return a directory of somebody's own as an image, as ch-convert makes it."""
    make_mount_points(root)
    note(f"reading {root}")
    sealed, written = Seal.of(root.resolve()), root / "ch" / "environment"
    lines = written.read_text(encoding="utf-8").splitlines() if written.is_file() else ()
    size = sum(stamp[0] for stamp, _ in sealed.files.values() if stamp)
    facts = ImageFacts(name=str(root), id=f"sha256:{sealed.content}", size_bytes=size)
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    return facts, _Unpacked(sealed.directory, variables, sealed.content)
