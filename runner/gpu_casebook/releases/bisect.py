"""A bisection from the question to the page: on disk at every trial, and gone on with where one was stopped."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import Case
from gpu_casebook.records.bisection import Bisection, Question, record_path, unfinished_path
from gpu_casebook.releases import halving
from gpu_casebook.releases.bisector import Bisector, EndError, trial_counts
from gpu_casebook.releases.environments import environments
from gpu_casebook.releases.question import BisectOptions, question, record, same
from gpu_casebook.releases.signature import signature
from gpu_casebook.releases.versions import released
from gpu_casebook.report.bisection import page
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan


class Stopped(StrEnum):
    """What becomes of a search that was begun and stopped: `EITHER` goes on with one if it asked the same."""

    ASK = "options"
    RESUME = "resume"
    FORGET = "forget"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a bisection is written, finished and under way."""

    record: Path
    unfinished: Path

    @property
    def page(self) -> Path:
        return self.record.with_suffix(".md")

    def keep(self, record: Bisection) -> None:
        record.write(self.unfinished)

    def finish(self, found: Bisection) -> None:
        found.write(self.record)
        write_whole(self.page, page(found))
        self.unfinished.unlink(missing_ok=True)


def bisect(
    case: Case,
    options: BisectOptions,
    engine: Engine,
    console: Console,
    reports: Path,
    *,
    stopped: Stopped = Stopped.ASK,
) -> tuple[Bisection, Path]:
    """The finished record, and its page. Everything that can be known to be wrong is, before anything is installed.

    Raises UsageError for what is asked wrongly, MachineError where no environment can run here, and EndError where an
    end is not what it was said to be.
    """
    plan = _plan(case, options.run, engine)
    asked = question(options, plan, engine.name)
    seen = signature(
        case,
        plan.environment,
        options.variant,
        expect_message=options.expect_message,
        good_message=options.good_message,
    )
    files = Files(
        record=record_path(reports, case.id, asked.package),
        unfinished=unfinished_path(reports, case.id, asked.package),
    )
    begun = _begun(asked, files, stopped) or record(asked, options, plan, seen, released)
    _say(begun, console)
    with environments(plan, options.variant, engine, seen, console) as tried:
        bisector = Bisector(
            record=begun,
            environments=tried,
            counts=trial_counts(plan, options.trials),
            console=console,
            save=files.keep,
        )
        found = _run(bisector, files)
    files.finish(found)
    return found, files.page


def _plan(case: Case, options: Options, engine: Engine) -> Plan:
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        raise MachineError(f"no environment of {case.id} can run here: {'; '.join(plan.reasons)}")
    return plan


def _begun(asked: Question, files: Files, stopped: Stopped) -> Bisection | None:
    """What there is to go on with. Raises UsageError where that was not asked for, or can't be."""
    if stopped is Stopped.FORGET:
        return None
    left = Bisection.read(files.unfinished) if files.unfinished.is_file() else None
    there = left is not None and same(asked, left.question)
    if stopped is Stopped.RESUME and left is None:
        raise UsageError(f"--resume: there is nothing to go on with ({files.unfinished.name}); leave it out")
    if stopped is Stopped.RESUME and not there:
        raise UsageError("--resume: what was stopped was another question, or the case has changed; use --restart")
    if stopped is Stopped.ASK and there:
        raise UsageError("this search was begun and stopped; go on with --resume, or begin again with --restart")
    return left if there else None


def _say(begun: Bisection, console: Console) -> None:
    asked, between = begun.question, len(begun.versions) - 2
    looked = "fixed" if asked.seeks_fix else "introduced"
    where = f"{asked.case} in environment {asked.environment}, {asked.engine}"
    console.say(f"{where}: which {asked.package} {looked} it? {begun.versions[0]} to {begun.versions[-1]}")
    over = f", {len(begun.passed_over)} passed over" if begun.passed_over else ""
    if between:
        console.say(f"  {between} releases between them{over}: at most {halving.most_calls(between)} steps, and skips")
    else:
        console.say(f"  nothing is between them{over}: only the ends are tried")


def _run(bisector: Bisector, files: Files) -> Bisection:
    try:
        return bisector.run()
    except EndError:
        files.unfinished.unlink(missing_ok=True)  # there is nothing to go on with: another question is needed
        raise
