"""A bisection from the options of the command to its page. It is on disk after every trial, so that it can go on."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.evidence import Variant
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import Case, nearest
from gpu_casebook.records.bisection import Bisection, Question, record_path, unfinished_path
from gpu_casebook.releases import halving
from gpu_casebook.releases.bisector import Bisector, EndError, trial_counts
from gpu_casebook.releases.environments import environments, pins
from gpu_casebook.releases.signature import Signature, signature
from gpu_casebook.releases.versions import Release, Releases, released
from gpu_casebook.report.bisection import page
from gpu_casebook.revision import own_revision
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan


@dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """The options of the command; `good` or `fixed_in` is given, not both."""

    package: str
    bad: str
    good: str | None = None
    fixed_in: str | None = None
    variant: Variant = Variant.REPRO
    others: Sequence[str] = ()
    expect_message: str | None = None
    good_message: str | None = None
    trials: int | None = None
    alpha: float | None = None
    pre: bool = False
    run: Options = field(default_factory=Options)
    """Of a run of the case: its environment, and whether trials are forked."""


class Stopped(StrEnum):
    """What becomes of a search that was begun and stopped: `EITHER` goes on with one if it asked the same."""

    ASK = "options"
    RESUME = "resume"
    FORGET = "forget"
    EITHER = "either"


def bisect(
    case: Case,
    options: BisectOptions,
    engine: Engine,
    console: Console,
    reports: Path,
    *,
    stopped: Stopped = Stopped.ASK,
) -> tuple[Bisection, Path]:
    """Return the finished record, and its page. All that can be known to be wrong is, before anything is installed.

    Raises UsageError for what is asked wrongly, MachineError where no environment can run here, and EndError where an
    end is not what it was said to be.
    """
    plan = make_plan(case, options.run, engine)
    if isinstance(plan, Skipped):
        raise MachineError(f"no environment of {case.id} can run here: {'; '.join(plan.reasons)}")
    failure = signature(case, plan.environment, options.variant, options.expect_message, options.good_message)
    record = _new_record(options, plan, engine, failure)
    path = record_path(reports, case.id, record.question.package)
    unfinished = unfinished_path(path)
    record = _begun(record.question, unfinished, stopped) or record
    _say(record, console)
    counts = trial_counts(plan, options.trials)
    with environments(plan, options.variant, engine, failure, console) as tried:
        bisector = Bisector(
            record=record, environments=tried, counts=counts, console=console, save=lambda now: now.write(unfinished)
        )
        try:
            bisector.run()
        except EndError:
            unfinished.unlink(missing_ok=True)  # there is nothing to go on with: another question is needed
            raise
    record.write(path)
    write_whole(path.with_suffix(".md"), page(record))
    unfinished.unlink(missing_ok=True)
    return record, path.with_suffix(".md")


def _begun(question: Question, unfinished: Path, stopped: Stopped) -> Bisection | None:
    """Return what there is to go on with. Raises UsageError where that was not asked for, or can't be."""
    there = stopped is not Stopped.FORGET and unfinished.is_file()
    left = Bisection.read(unfinished) if there else None
    same = left is not None and left.question == question
    if stopped is Stopped.RESUME and left is None:
        raise UsageError(f"--resume: there is nothing to go on with ({unfinished.name}); leave it out")
    if stopped is Stopped.RESUME and not same:
        raise UsageError("--resume: what was stopped was another question, or the case has changed; use --restart")
    if stopped is Stopped.ASK and same:
        raise UsageError("this search was begun and stopped; go on with --resume, or begin again with --restart")
    return left if same else None


def _say(record: Bisection, console: Console) -> None:
    asked, between = record.question, len(record.versions) - 2
    looked = "fixed" if asked.seeks_fix else "introduced"
    where = f"{asked.case} in environment {asked.environment}, {asked.engine}"
    console.say(f"{where}: which {asked.package} {looked} it? {record.versions[0]} to {record.versions[-1]}")
    over = f", {len(record.passed_over)} passed over" if record.passed_over else ""
    steps = f"at most {halving.most_calls(between)} steps, and skips" if between else "only the ends are tried"
    console.say(f"  {between or 'no'} releases between them{over}: {steps}")


# From the options to a record


def _new_record(options: BisectOptions, plan: Plan, engine: Engine, failure: Signature) -> Bisection:
    """Return the record that a search starts with.

    Raises UsageError for a package that the environment does not pin, or for ends that do not exist, were yanked, or
    are the wrong way round.
    """
    case, environment, python = plan.case, plan.environment, plan.spec.python
    package, pinned = canonicalize_name(options.package), pins(case.requirements(environment, options.variant))
    if package not in pinned:
        where = f"environment {environment} of {case.id} does not pin it"
        raise UsageError(f"--package {options.package}: {where}{nearest(package, pinned)}")
    other_end = options.good or options.fixed_in
    if not other_end or (options.good and options.fixed_in):
        raise UsageError("name one other end: --good VERSION, older than --bad, or --fixed-in VERSION, newer than it")
    others = _others(options.others, set(pinned) - {package})
    releases = released(package)
    ends = [other_end, options.bad] if options.good else [options.bad, other_end]
    low, high = (_end(releases, text, python) for text in ends)
    _check_order(low.version, high.version, options)
    good, bad = (low, high) if options.good else (high, low)
    question = Question(
        case=case.id,
        package=package,
        environment=environment,
        variant=options.variant,
        good=str(good.version),
        bad=str(bad.version),
        others=others,
        expect_message=options.expect_message,
        good_message=options.good_message,
        trials=options.trials,
        alpha=options.alpha or case.manifest.alpha,
        engine=engine.name,
        digest=case.digest(),
    )
    between = [each for each in releases.all if low.version < each.version < high.version]
    pre = options.pre or low.version.is_prerelease or high.version.is_prerelease
    barred = {str(each.version): each.barred(python, pre=pre) for each in between}
    return Bisection(
        question=question,
        versions=[str(low.version), *(version for version, why in barred.items() if not why), str(high.version)],
        passed_over={version: why for version, why in barred.items() if why},
        signature=failure.lines,
        started=datetime.now(UTC),
        command=_command(question, options),
        runner=own_revision(),
    )


def _others(pinned: Sequence[str], known: set[str]) -> dict[str, str]:
    """Return other packages and the versions they are held at. Raises UsageError."""
    held: dict[str, str] = {}
    for text in pinned:
        try:
            [(name, version)] = pins([text]).items()
        except ValueError as error:
            raise UsageError(f"--with {text}: {error}") from None
        if name not in known:
            raise UsageError(f"--with {text}: name another package that the case pins{nearest(name, known)}")
        held[name] = version
    return held


def _end(releases: Releases, text: str, python: str) -> Release:
    found = releases.find(text)
    if why := found.unfit(python):
        raise UsageError(f"{releases.package} {text} can't be installed here: {why}")
    return found


def _check_order(low: Version, high: Version, options: BisectOptions) -> None:
    """Raise UsageError, with what to write instead, unless the older end is the older one."""
    if low == high:
        raise UsageError(f"nothing is between {low} and itself; name two releases of {options.package}")
    if low > high and options.good:
        fix = f"to look for the release that fixed it, write --bad {high} --fixed-in {low}"
        raise UsageError(f"--good {low} is newer than --bad {high}; {fix}")
    if low > high:
        introduced = f"to look for the release that introduced it, write --good {high} --bad {low}"
        raise UsageError(f"--fixed-in {high} is older than --bad {low}; {introduced}")


def _command(question: Question, options: BisectOptions) -> str:
    """Return the command that does the same again."""
    ends = {"--bad": question.bad, "--fixed-in": question.good}
    if options.good:
        ends = {"--good": question.good, "--bad": question.bad}
    given: dict[str, object] = {"--package": question.package, **ends, "--expect-message": question.expect_message}
    given |= {"--good-message": question.good_message, "--trials": question.trials, "--alpha": options.alpha}
    given["--variant"] = question.variant.value if question.variant is not Variant.REPRO else None
    words = ["nox", "-s", "bisect", "--", question.case]
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    words += [word for name, version in question.others.items() for word in ("--with", f"{name}=={version}")]
    words += replace(options.run, environment=question.environment).words(question.engine)
    return shlex.join([*words, *["--pre"] * options.pre])
