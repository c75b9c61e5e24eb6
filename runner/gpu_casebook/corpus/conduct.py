"""One run from what was asked to its pages and its exit status: begun, or taken up again."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO

from gpu_casebook.corpus import closing, disk, drive
from gpu_casebook.corpus.begin import Begun, Wish, begin, engine_of, local_machine, room_for
from gpu_casebook.corpus.journal import Journal
from gpu_casebook.corpus.model import Run, Settings
from gpu_casebook.corpus.pool import Pool
from gpu_casebook.corpus.report import files as report
from gpu_casebook.corpus.table import RunTable
from gpu_casebook.corpus.workers import Machine, Workers
from gpu_casebook.engines import registry
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, ExitStatus, MachineError
from gpu_casebook.packages.uv import disk_is_full
from gpu_casebook.report import render

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who runs the jobs. `engine` is None where each machine of a fleet has its own."""

    machines: Sequence[Machine]
    engine: Engine | None
    workers: Callable[[Path], Workers]
    """Made for a run's directory, in which they may leave logs."""


def start(wish: Wish, out: TextIO) -> int:
    """Run what is asked for; the exit status. Raises CasebookError, OSError, KeyboardInterrupt."""
    say = partial(print, file=out, flush=True)
    wish.selection.check()
    with _crew(wish, wish.settings, say) as (crew, settings):
        begun = begin(replace(wish, settings=settings), crew.machines, crew.engine, say)
        if begun is None:
            say(f"nothing changed since {wish.selection.changed_since} that any case rests on; nothing is run")
            return 0
        with begun.journal:
            return _run(wish, begun, crew, out)


def resume(wish: Wish, id_: str | None, out: TextIO) -> int:
    """Go on with a run, or tell again how it ended. Raises as `start` does, and UsageError where there is none."""
    say = partial(print, file=out, flush=True)
    with Journal.resume(Path(wish.settings.reports), id_) as journal:
        run = journal.run = _here(journal.run, wish.settings)
        say(f"run {run.id}: {len(run.finished)} of {len(run.jobs)} finished, {len(run.left)} left")
        if not run.left:
            return _close(journal, say)
        with _crew(wish, run.settings, say) as (crew, _):
            ready = room_for(run.settings, run.left, crew.engine, say).ready
            return _run(wish, Begun(journal, ready), crew, out)


def _here(run: Run, now: Settings) -> Run:
    """Its checkout may lie elsewhere by now."""
    settings = run.settings.model_copy(update={"root": now.root, "reports": now.reports})
    return run.model_copy(update={"settings": settings})


@contextmanager
def _crew(wish: Wish, settings: Settings, say: Say) -> Iterator[tuple[Crew, Settings]]:
    """Who runs the jobs, and the settings with the engine that was found, so that all jobs have the same one."""
    with ExitStack() as stack:
        if wish.fleet:
            from gpu_casebook.corpus.fleet import Fleet  # noqa: PLC0415 Ray takes a second to import, and is an extra

            fleet = stack.enter_context(Fleet(settings, wish.fleet, say, jobs=wish.jobs))
            yield Crew(machines=fleet.machines, engine=None, workers=lambda _: fleet), settings
            return
        engine = stack.enter_context(engine_of(settings, say))
        found = settings.model_copy(update={"engine": engine.name})
        look = partial(local_machine, wish.jobs, wish.gpus, elsewhere=not engine.local)
        workers = partial(_pool, found, look)
        yield Crew(machines=[look()], engine=engine, workers=workers), found


def _pool(settings: Settings, look: Callable[[], Machine], directory: Path) -> Workers:
    return Pool(settings, directory / "logs", look)


def _run(wish: Wish, begun: Begun, crew: Crew, out: TextIO) -> int:
    journal, run = begun.journal, begun.journal.run
    say = partial(print, file=out, flush=True)
    ready = {(machine.name, key) for machine in crew.machines if crew.engine for key in begun.ready}
    try:
        with ExitStack() as stack:
            shown = stack.enter_context(RunTable(out, run.left, len(run.finished)))
            workers = crew.workers(journal.directory)
            if crew.engine:
                stack.enter_context(workers)
            drive.Driver(
                journal=journal,
                workers=workers,
                display=shown,
                prepared=ready,
                lost=partial(_sweep, run.settings),
                fail_fast=wish.fail_fast,
            ).drive()
    except (KeyboardInterrupt, CasebookError, OSError) as error:
        if crew.engine:
            _sweep(run.settings)
        raise _stopped(error, journal.run) from error
    return _close(journal, say)


class StoppedRunError(CasebookError):
    """A run ended early. `exit_status` is that of what ended it."""

    def __init__(self, text: str, exit_status: int) -> None:
        super().__init__(text)
        self.exit_status = exit_status


def _stopped(error: BaseException, run: Run) -> StoppedRunError:
    told = f"{len(run.finished)} of {len(run.jobs)} jobs are finished and safe; go on with: {_again(run)}"
    if isinstance(error, CasebookError):
        return StoppedRunError(f"{error}; {told}", error.exit_status)
    if isinstance(error, OSError):
        at = f" {error.filename}" if error.filename else ""
        why = f"no space left on{at or ' the disk'}" if disk_is_full(error) else f"{error.strerror or error}{at}"
        return StoppedRunError(f"{why}; {told}", MachineError.exit_status)
    return StoppedRunError(f"interrupted; nothing is left running; {told}", ExitStatus.INTERRUPTED)


def _again(run: Run) -> str:
    """The command that goes on with a run."""
    words = ["casebook", "corpus", "--resume", run.id]
    usual = Path(run.settings.reports) == Path(run.settings.root) / "reports"
    return shlex.join(words if usual else [*words, "--reports", run.settings.reports])


def _sweep(settings: Settings) -> None:
    """What a worker that was killed left behind: its trials, and what they ran in."""
    with suppress(CasebookError, OSError), registry.choose(settings.engine, Path(settings.root), lambda _: None):
        pass


def _close(journal: Journal, say: Say) -> int:
    """Pages, and the last words. A run that had ended before has its pages."""
    run = journal.run
    if run.ended is None and not run.left:
        used = disk.used_bytes(journal.directory) if run.disk_before_bytes is not None else None
        ended = {"ended": datetime.now(UTC), "disk_after_bytes": used}
        _pages(run.model_copy(update=ended), say)
        journal.update(**ended)
    elif run.left:
        _pages(run, say)
    for line in closing.summary(run):
        say(line)
    if run.left:
        say(f"go on with: {_again(run)}")
    page = journal.directory / report.PAGE
    if page.is_file():
        say(f"report: {_short(page)}")
    return closing.status(run)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _pages(run: Run, say: Say) -> None:
    """The cases' pages and the run's own. What can't be written is told, and changes nothing about the run."""
    reports = Path(run.settings.reports)
    try:
        render(reports, drive.ended_cases(run.finished))
        report.write(reports, run)
    except (CasebookError, OSError) as error:
        say(f"pages: {error}")
