"""The disk that a run will take, before it starts: what is not there yet of the environments, and the evidence."""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.corpus.model import Job
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, MachineError
from gpu_casebook.evidence import Variant
from gpu_casebook.manifest.case import Case, find, known_images
from gpu_casebook.packages.lock import ROOM_PER_WHEEL_BYTE, installed_bytes, read_lock, wheel_bytes
from gpu_casebook.run.plan import recipe
from gpu_casebook.trial import Recipe
from gpu_casebook.words import size

EVIDENCE_BYTES = 200_000
"""For one job: the largest of this repository's evidence has 135 kB."""


class Need(NamedTuple):
    """So many bytes will be taken at `place` for `what`; None where nobody knows where that is."""

    place: Path | None
    bytes: int
    what: str


@dataclass(frozen=True)
class Room:
    """One disk: all that will be taken of it, for what, and the bytes that are free."""

    place: Path
    needed: int
    what: Sequence[str]
    free: int

    def __str__(self) -> str:
        return f"up to {size(self.needed)} for {', '.join(self.what)} at {self.place}, which has {size(self.free)} free"


Free = Callable[[Path], int]


def free_bytes(place: Path) -> int:
    """Of the disk that `place` is on, or will be."""
    return shutil.disk_usage(_existing(place)).free


def used_bytes(place: Path) -> int:
    """Of the whole disk, whoever uses it."""
    return shutil.disk_usage(_existing(place)).used


def rooms(needs: Iterable[Need], free: Free = free_bytes) -> list[Room]:
    """Needs that meet on one disk are added up; what needs nothing is left out."""
    disks: dict[int, list[Need]] = {}
    for need in needs:
        if need.place and need.bytes:
            disks.setdefault(os.stat(_existing(need.place)).st_dev, []).append(need)  # noqa: PTH116 a number is enough
    return [_room(together, free) for together in disks.values()]


def _room(needs: Sequence[Need], free: Free) -> Room:
    largest = max(needs, key=lambda need: need.bytes)
    assert largest.place
    return Room(largest.place, sum(need.bytes for need in needs), [need.what for need in needs], free(largest.place))


def check(found: Iterable[Room]) -> None:
    """Raises MachineError for the first disk that is too small."""
    for room in found:
        if room.needed > room.free:
            raise MachineError(f"the disk is too small for this run: {room}; free some, or select fewer cases")


def _existing(place: Path) -> Path:
    return next(path for path in (place, *place.parents) if path.exists())


class Recipes:
    """What jobs are to run in, with the keys of the environments that need it. `jobs` counts them."""

    def __init__(self) -> None:
        self.keys: dict[Recipe, set[str]] = {}
        self.jobs = 0

    def add(self, case: Case, job: Job) -> None:
        """Raises ManifestError where there is no lock."""
        for variant in Variant:
            self.keys.setdefault(recipe(case, job.environment, variant), set()).add(job.environment_key)
        self.jobs += 1


def recipes(root: Path, jobs: Iterable[Job]) -> Recipes:
    """What these jobs are to run in. A case that can't be read is passed over: its job will say so."""
    images, found = known_images(root), Recipes()
    for job in jobs:
        with suppress(CasebookError, OSError):
            found.add(find(root, job.case, images), job)
    return found


class Survey(NamedTuple):
    """What a run will take, and the keys of the environments that are there already."""

    needs: list[Need]
    ready: set[str]


def survey(reports: Path, needed: Recipes, engine: Engine, use_image: str | None = None) -> Survey:
    """Look what is there on this machine. Raises EngineError where the engine does not answer."""
    wanted = {} if use_image else needed.keys
    environments, absent = _environments(list(wanted), engine)
    unready = {key for each in absent for key in wanted[each]}
    evidence = Need(reports, EVIDENCE_BYTES * needed.jobs, "evidence")
    return Survey([environments, evidence], set().union(*needed.keys.values()) - unready)


def _environments(wanted: Sequence[Recipe], engine: Engine) -> tuple[Need, list[Recipe]]:
    absent = list(engine.absent(wanted))
    taken = docker_bytes(absent, 0, peak_bytes) if engine.has_images else venv_bytes(absent)
    what = "image" if engine.has_images else "environment"
    return Need(engine.storage, taken, _counted(len(absent), what)), absent


def peak_bytes(recipe: Recipe) -> int:
    """Disk that the build of an image takes while it runs, without what it stands on."""
    return ROOM_PER_WHEEL_BYTE * _download(recipe)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def venv_bytes(absent: Iterable[Recipe]) -> int:
    """What these environments take, whose files are links into one cache: a wheel that two have is there once.

    A lock tells the bytes of all its wheels, not of each. So of a lock after the largest one, that share is counted
    that its packages have which no lock before had.
    """
    total, seen = 0, set[tuple[str, str]]()
    for each in sorted(absent, key=_download, reverse=True):
        pins = {(pin.name, pin.version) for pin in read_lock(each.lock).pins}
        new = len(pins - seen) / len(pins) if pins else 0.0
        total += round(installed_bytes(_download(each)) * new)
        seen |= pins
    return total


def docker_bytes(absent: Iterable[Recipe], stages_bytes: int, peak: Callable[[Recipe], int]) -> int:
    """What these images take: each holds all of its lock. Builds come one by one, and each takes more while it runs.

    `stages_bytes` is for what they stand on and what is not there yet, `peak` what one build takes.
    """
    each = list(absent)
    lasting = [installed_bytes(_download(one)) for one in each]
    more = max((peak(one) - last for one, last in zip(each, lasting, strict=True)), default=0)
    return stages_bytes + sum(lasting) + max(0, more)


def _download(each: Recipe) -> int:
    return wheel_bytes(each.lock) or 0
