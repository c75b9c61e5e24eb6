"""From what was asked to the record of a run: which engine, which jobs, what is reused, and what disk it takes."""

import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.corpus import disk, journal, order, pool, reuse
from gpu_casebook.corpus.journal import Journal
from gpu_casebook.corpus.model import End, Finished, Job, Run, Settings
from gpu_casebook.corpus.select import Cant, Selection, select
from gpu_casebook.corpus.workers import Gpu, Machine
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, MachineError, UsageError
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.packages.uv import disk_is_full
from gpu_casebook.revision import own_revision
from gpu_casebook.run.plan import why_not
from gpu_casebook.trial import Recipe

Say = Callable[[str], None]

REMEMBERED = 5
"""Runs that are looked at for how long a job took."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the command line asks for. `gpus` are indices, `jobs` how many at once, `fleet` an address."""

    settings: Settings
    selection: Selection
    max_age_s: float
    gpus: Sequence[int] | None = None
    jobs: int | None = None
    fleet: str | None = None
    fail_fast: bool = False
    command: str = ""


def local_machine(jobs: int | None, gpus: Sequence[int] | None, *, elsewhere: bool = False) -> Machine:
    """The machine that we are on, with those of its GPUs that are named. Raises MachineError for one that is not there.

    `elsewhere`: the engine is on another machine, whose GPUs nobody here can count; those named are taken to be there.
    """
    found = pool.local_machine(jobs)
    if elsewhere:
        return replace(found, gpus=tuple(Gpu(index=index) for index in gpus or ()))
    if gpus is None:
        return found
    there = {gpu.index: gpu for gpu in found.gpus}
    if missing := [index for index in gpus if index not in there]:
        listed = ", ".join(map(str, there)) or "none"
        raise MachineError(f"--gpu {missing[0]}: no such GPU on this machine (there are: {listed})")
    return replace(found, gpus=tuple(there[index] for index in dict.fromkeys(gpus)))


class Room(NamedTuple):
    """Keys of the environments that are ready on this machine, and the bytes in use where the others will go."""

    ready: set[str]
    used_bytes: int | None


class Begun(NamedTuple):
    journal: Journal
    ready: set[str]


def begin(wish: Wish, machines: Sequence[Machine], engine: Engine | None, say: Say) -> Begun | None:
    """Choose the jobs, and write the record of a run of them, with what ended already; None where there is none.

    `engine` is None where each machine of a fleet has its own. Raises UsageError for a selection of nothing, and
    MachineError where the disk will not do.
    """
    settings, now = wish.settings, datetime.now(UTC)
    root, reports = Path(settings.root), Path(settings.reports)
    here, age = _here(settings, machines, engine, wish.gpus), reuse.Age(now, wish.max_age_s)
    needed = disk.Recipes()

    def look(case: Case, job: Job) -> Job | Finished:
        found = reuse.reuse(case, job, settings, here, age)
        if isinstance(found, Job):
            needed.add(case, job)
        return found

    chosen = select(root, wish.selection, cant(machines, engine, wish.gpus), durations(reports), look)
    if not chosen.jobs:
        return None
    room = _room(settings, needed, engine, say)
    run = Run(
        id=_new_id(reports, now),
        started=now,
        host=socket.gethostname(),
        runner=own_revision(),
        command=wish.command,
        selection=str(wish.selection),
        settings=settings,
        jobs=chosen.jobs,
        disk_before_bytes=room.used_bytes,
    )
    record = Journal.create(reports, run)
    try:
        record.append(chosen.ended)
    except BaseException:
        record.close()
        raise
    return Begun(record, room.ready)


def _new_id(reports: Path, now: datetime) -> str:
    try:
        return journal.new_id(reports, now)
    except OSError as error:
        if disk_is_full(error):
            raise
        raise UsageError(f"--reports {reports}: nothing can be written there: {error.strerror}") from None


def cant(machines: Sequence[Machine], engine: Engine | None, gpus: Sequence[int] | None) -> Cant:
    """Why an environment can't run here, or on any machine of the fleet."""
    found = hardware.gpus() if engine and engine.local else None

    def why(spec: EnvironmentSpec, job: Job) -> str | None:
        if engine and (reason := why_not(spec, found, engine, gpus)):
            return reason
        return order.impossible(job, machines)

    return why


def durations(reports: Path) -> dict[str, float]:
    """How long each job took when it last ran, by its name, in seconds."""
    took: dict[str, float] = {}
    for id_ in journal.ids(reports)[-REMEMBERED:]:
        with suppress(CasebookError):
            run = journal.read(journal.runs_directory(reports) / id_)
            took |= {each.job.name: each.duration_s for each in run.finished if each.end is End.RAN}
    return took


def _here(
    settings: Settings, machines: Sequence[Machine], engine: Engine | None, gpus: Sequence[int] | None
) -> reuse.Here:
    if engine is None:
        devices = [reuse.Device(gpu.name, gpu.compute_capability) for machine in machines for gpu in machine.gpus]
    else:
        found = hardware.gpus() if engine.local else []
        devices = [
            reuse.Device(gpu.name, gpu.compute_capability, gpu.driver)
            for gpu in found
            if gpus is None or gpu.index in gpus
        ]
    return reuse.Here(devices=devices, image=_image_of(settings, engine))


def _image_of(settings: Settings, engine: Engine | None) -> Callable[[Recipe, str], str | None]:
    """What the engine would run a recipe in today, by name or by id; of no use to an engine without images."""
    from gpu_casebook.images.build import reference  # noqa: PLC0415 the SDK takes a while to import

    if settings.image is None:
        return lambda recipe, base: reference(Path(settings.root), recipe, base)
    found = engine.image_id(settings.image) if engine else None
    return lambda _recipe, _base: found


def room_for(settings: Settings, left: Iterable[Job], engine: Engine | None, say: Say) -> Room:
    """State what jobs will take of the disk. Raises MachineError where that is not there."""
    return _room(settings, disk.recipes(Path(settings.root), left), engine, say)


def _room(settings: Settings, needed: disk.Recipes, engine: Engine | None, say: Say) -> Room:
    if engine is None or not needed.jobs:
        return Room(set(), None)
    found = disk.survey(Path(settings.reports), needed, engine, settings.image)
    rooms = disk.rooms(found.needs)
    for room in rooms:
        say(f"disk: {room}")
    if not engine.local:
        say("disk: images go to another machine, of whose disk nothing is known here")
    disk.check(rooms)
    return Room(found.ready, disk.used_bytes(rooms[0].place) if rooms else None)


def engine_of(settings: Settings, say: Say) -> Engine:
    """The engine of the whole run."""
    return registry.choose(settings.engine, Path(settings.root), say)
