"""One run, from what was asked to its pages and its exit status: begun, or taken up again."""

import shlex
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO

from gpu_casebook.corpus import driver, journal, pool, reuse, schedule, summary
from gpu_casebook.corpus.events import Machine, Workers
from gpu_casebook.corpus.journal import Journal
from gpu_casebook.corpus.model import End, Finished, Job, Run, Settings, ended
from gpu_casebook.corpus.report import files as report
from gpu_casebook.corpus.selection import Selection, environment_key, select
from gpu_casebook.corpus.table import RunTable
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, ExitStatus, MachineError, UsageError
from gpu_casebook.files import disk_is_full, os_reason
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import EnvironmentSpec
from gpu_casebook.packages.lock import wheel_bytes
from gpu_casebook.places import reports_of
from gpu_casebook.report.pages import render
from gpu_casebook.revision import own_revision
from gpu_casebook.run.needs import needs
from gpu_casebook.run.plan import recipe, why_not
from gpu_casebook.text import size
from gpu_casebook.trial import Recipe

FLOOR_BYTES = 1_000_000_000
"""Of the disk that environments take: what has to be free beside the wheels of the largest one that is built."""
REMEMBERED = 5
"""Runs that are looked at for how long a job took."""

Say = Callable[[str], None]
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


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who runs the jobs. `engine` is None where each machine of a fleet has its own."""

    settings: Settings
    """With the engine that was found, so that all jobs have the same one."""
    machines: Sequence[Machine]
    engine: Engine | None
    workers: Callable[[Path], Workers]
    """Made for a run's directory, in which they may leave logs."""


def start(request: Request, out: TextIO) -> int:
    """Run what is asked for and return the exit status. Raises CasebookError, OSError, KeyboardInterrupt."""
    say = partial(print, file=out, flush=True)
    with _crew(request, request.settings, say) as crew:
        begun = begin(replace(request, settings=crew.settings), crew.machines, crew.engine)
        if begun is None:
            say(f"nothing changed since {request.selection.changed_since} that any case rests on; nothing is run")
            return 0
        with begun:
            return _run(request, begun, crew, out)


def resume(request: Request, id_: str | None, out: TextIO) -> int:
    """Resume a run, or say again how it ended. Raises as `start` does, and UsageError where there is none."""
    say = partial(print, file=out, flush=True)
    with Journal.resume(Path(request.settings.reports), id_) as record:
        here = {"root": request.settings.root, "reports": request.settings.reports}  # its checkout may have moved
        run = record.run.model_copy(update={"settings": record.run.settings.model_copy(update=here)})
        record.run = run
        say(f"run {run.id}: {len(run.finished)} of {len(run.jobs)} finished, {len(run.left)} left")
        if not run.left:
            return _close(record, say)
        with _crew(request, run.settings, say) as crew:
            return _run(request, record, crew, out)


@contextmanager
def _crew(request: Request, settings: Settings, say: Say) -> Iterator[Crew]:
    with ExitStack() as stack:
        if request.fleet:
            from gpu_casebook.corpus.fleet import Fleet  # noqa: PLC0415 Ray takes a second to import, and is an extra

            fleet = stack.enter_context(Fleet(settings, request.fleet, say, jobs=request.jobs))
            yield Crew(settings=settings, machines=fleet.machines, engine=None, workers=lambda _: fleet)
            return
        engine = stack.enter_context(registry.choose(settings.engine, Path(settings.root), say))
        found = settings.model_copy(update={"engine": engine.name})
        look = partial(local_machine, request.jobs, request.gpus, elsewhere=not engine.local)
        workers = partial(pool.Pool, found, machine=look)
        yield Crew(settings=found, machines=[look()], engine=engine, workers=lambda run: workers(run / "logs"))


def local_machine(jobs: int | None, gpus: Sequence[int] | None, *, elsewhere: bool = False) -> Machine:
    """Return this machine, with those of its GPUs that are named. Raises MachineError for one that is not there.

    `elsewhere`: the engine is on another machine, whose GPUs can't be counted here; those named are taken to be there.
    """
    found = Machine(name=socket.gethostname(), cores=jobs or hardware.cores(), gpus=hardware.gpus())
    if elsewhere:
        return replace(found, gpus=[HostGpu(index=index) for index in gpus or ()])
    if gpus is None:
        return found
    there = {gpu.index: gpu for gpu in found.gpus}
    if missing := [index for index in gpus if index not in there]:
        listed = ", ".join(map(str, there)) or "none"
        raise MachineError(f"--gpu {missing[0]}: no such GPU on this machine (there are: {listed})")
    return replace(found, gpus=[there[index] for index in dict.fromkeys(gpus)])


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


def _run(request: Request, record: Journal, crew: Crew, out: TextIO) -> int:
    run = record.run
    # In a fleet each machine builds what it lacks when a job gets there: where that is, Ray decides.
    ready = set() if crew.engine else {job.environment_key for job in run.left}
    try:
        with ExitStack() as stack:
            shown = stack.enter_context(RunTable(out, len(run.jobs), len(run.finished)))
            workers = crew.workers(record.directory)
            if crew.engine:
                stack.enter_context(workers)
            driver.Driver(
                journal=record,
                workers=workers,
                display=shown,
                ready=ready,
                lost=partial(_sweep, run.settings),
                fail_fast=request.fail_fast,
            ).drive()
    except (KeyboardInterrupt, CasebookError, OSError) as error:
        raise _stopped(error, record.run) from error
    finally:
        if crew.engine:  # it may have been away for a time, and workers killed
            _sweep(run.settings)
    return _close(record, partial(print, file=out, flush=True))


def _stopped(error: BaseException, run: Run) -> CasebookError:
    """Return an error with the exit status of what ended the run early, which says how to go on."""
    text, status = "interrupted; nothing is left running", int(ExitStatus.INTERRUPTED)
    if isinstance(error, CasebookError):
        text, status = str(error), error.exit_status
    elif isinstance(error, OSError):
        text, status = os_reason(error), MachineError.exit_status
    done = f"{len(run.finished)} of {len(run.jobs)} jobs are finished and safe"
    stopped = CasebookError(f"{text}; {done}; go on with: {_again(run)}")
    stopped.exit_status = status
    return stopped


def _again(run: Run) -> str:
    """Return the command that goes on with a run: that of a bundle does so by itself."""
    if run.command and not run.command.startswith("casebook "):
        return run.command
    words = ["casebook", "corpus", "--resume", run.id]
    top, reports = Path(run.settings.root), Path(run.settings.reports)
    if reports == reports_of(top, published=True) != reports_of(top):
        return shlex.join([*words, "--publish"])
    return shlex.join(words if reports == reports_of(top) else [*words, "--reports", str(reports)])


def _sweep(settings: Settings) -> None:
    """Remove what a worker that was killed left behind: its trials, and what they ran in."""
    with suppress(CasebookError, OSError), registry.choose(settings.engine, Path(settings.root), lambda _: None):
        pass  # an engine is swept when it is chosen


def _close(record: Journal, say: Say) -> int:
    """Write the pages and print how the run ended. A run that had ended before has its pages."""
    run = record.run
    if run.ended is None and not run.left:
        ended = {"ended": datetime.now(UTC), "disk_after_bytes": shutil.disk_usage(record.directory).used}
        _pages(run.model_copy(update=ended), say)
        record.update(**ended)
    elif run.left:
        _pages(run, say)
    for line in summary.lines(run):
        say(line)
    if run.left:
        say(f"go on with: {_again(run)}")
    page = record.directory / report.PAGE
    if page.is_file():
        here = Path.cwd()
        say(f"report: {page.relative_to(here) if page.is_relative_to(here) else page}")
    return summary.status(run)


def _pages(run: Run, say: Say) -> None:
    """Write the cases' pages and the run's own. What can't be written is reported; the run's end stays the same."""
    reports = Path(run.settings.reports)
    try:
        render(reports, {each.job.case for each in run.finished if each.end is End.RAN})
        report.write(reports, run)
    except (CasebookError, OSError) as error:
        say(f"pages: {error}")
