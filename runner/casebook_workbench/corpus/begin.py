"""The beginning of a run: what is asked for becomes jobs, and the record of a run of them."""

import shutil
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus import journal, reuse, schedule
from casebook_workbench.corpus.events import Machine
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import End, Finished, Job, Run, Settings, ended
from casebook_workbench.corpus.selection import Selection, environment_key, select
from failure_signature.kinds import Variant
from failure_signature.text import size
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, MachineError, UsageError
from gpu_casebook.files import disk_is_full
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.packages.lock import wheel_bytes
from gpu_casebook.revision import own_revision
from gpu_casebook.run.needs import needs
from gpu_casebook.run.plan import recipe, why_not
from gpu_casebook.trial import Recipe

FLOOR_BYTES = 1_000_000_000
"""Of the disk that environments take: what has to be free beside the wheels of the largest one that is built."""
REMEMBERED = 5
"""Runs that are looked at for how long a job took."""

Unable = Callable[[EnvironmentSpec, Job], str | None]
"""Returns why an environment can't run on what there is; None if it can."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for."""

    settings: Settings
    selection: Selection
    max_age_s: float
    gpus: Sequence[int] | None = None
    """By index; None is all of them."""
    jobs: int | None = None
    """How many at once."""
    fleet: str | None = None
    """Address of a Ray cluster."""
    fail_fast: bool = False
    command: str = ""


def begin(request: Request, machines: Sequence[Machine], engine: Engine | None) -> Journal | None:
    """Choose the jobs, and write the record of a run of them, with what ended already; None where there is none.

    `engine` is None where each machine of a fleet has its own. Raises UsageError for a selection of nothing, and
    MachineError where the disk is too full to build an environment.
    """
    settings, now = request.settings, datetime.now(UTC)
    root, reports = Path(settings.root), Path(settings.reports)
    gpus = [gpu for machine in machines for gpu in machine.gpus]
    here = reuse.Here(now=now, max_age_s=request.max_age_s, devices=gpus, image=_image_of(settings, engine))
    why_not_here, took = unable(machines, engine, request.gpus), durations(reports, settings.options.trials)
    recipes: set[Recipe] = set()

    def look(case: Case, job: Job) -> Job | Finished:
        if reason := why_not_here(case.environment(job.environment), job):
            return ended(job, End.SKIPPED, reason)
        known = {"environment_key": environment_key(case, job.environment), "expected_s": took.get(job.name)}
        job = job.model_copy(update=known)
        found = reuse.reuse(case, job, settings, here)
        if isinstance(found, Job):
            recipes.update(recipe(case, job.environment, variant, settings.options) for variant in Variant)
            if found.expected_s is None:
                expected_s = needs(case, job.environment, settings.options.trials).trials_s
                found = found.model_copy(update={"expected_s": expected_s or None})
        return found

    chosen = select(root, request.selection, look)
    if not chosen.jobs:
        return None
    if engine:
        check_disk(engine, recipes)
    run = Run(
        id=_new_id(reports, now),
        started=now,
        host=socket.gethostname(),
        runner=own_revision(),
        command=request.command,
        selection=str(request.selection),
        settings=settings,
        jobs=chosen.jobs,
        disk_before_bytes=shutil.disk_usage(reports).used,
    )
    record = Journal.create(reports, run)
    try:
        record.append(chosen.ended)
    except BaseException:
        record.close()
        raise
    return record


def _new_id(reports: Path, now: datetime) -> str:
    try:
        return journal.new_id(reports, now)
    except OSError as error:
        if disk_is_full(error):
            raise
        raise UsageError(f"--reports {reports}: nothing can be written there: {error.strerror}") from None


def unable(machines: Sequence[Machine], engine: Engine | None, gpus: Sequence[int] | None) -> Unable:
    """Return a function that says why an environment can't run here, or on any machine of the fleet."""
    found = hardware.gpus() if engine and engine.local else None

    def why(spec: EnvironmentSpec, job: Job) -> str | None:
        if engine and (reason := why_not(spec, found, engine, gpus)):
            return reason
        return schedule.impossible(job, machines)

    return why


def durations(reports: Path, trials: int | None = None) -> dict[str, float]:
    """Return how long each job took when it last ran with as many `trials` (None: the cases' own), in seconds."""
    took: dict[str, float] = {}
    for id_ in journal.ids(reports)[-REMEMBERED:]:
        with suppress(CasebookError):
            run = journal.read(journal.runs_directory(reports) / id_)
            if run.settings.options.trials == trials:
                took |= {each.job.name: each.duration_s for each in run.finished if each.end is End.RAN}
    return took


def _image_of(settings: Settings, engine: Engine | None) -> Callable[[Recipe, str], str | None]:
    """Return a function from a recipe and its base to the image it would run in now, by name or id, or None."""
    from gpu_casebook.images.build import reference  # noqa: PLC0415 the SDK takes a while to import

    if settings.options.image is None:
        return lambda recipe, base: reference(Path(settings.root), recipe, base)
    found = engine.image_id(settings.options.image) if engine else None
    return lambda _recipe, _base: found


def check_disk(engine: Engine, recipes: Iterable[Recipe]) -> None:
    """Raises MachineError where the disk has no room for an environment that has to be built."""
    to_build = engine.absent([each for each in recipes if each.use_image is None])
    largest = max((wheel_bytes(each.lock) or 0 for each in to_build), default=0)
    if not largest or engine.storage is None:
        return
    place = next(path for path in (engine.storage, *engine.storage.parents) if path.exists())
    free, needed = shutil.disk_usage(place).free, FLOOR_BYTES + largest
    if free < needed:
        raise MachineError(
            f"the disk is too small for this run: {place} needs {size(needed)} for environments; {size(free)} are free"
        )
