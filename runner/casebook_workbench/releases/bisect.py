"""A bisection from the question to its page. It is on disk after every trial, so that it can go on."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from casebook_workbench.releases import halving
from casebook_workbench.releases.environments import environments, failure
from casebook_workbench.releases.page import page
from casebook_workbench.releases.records import Bisection, Question, record_path, unfinished_path
from casebook_workbench.releases.search import Bisector, EndError, trial_counts
from casebook_workbench.releases.versions import Release, Releases, released
from failure_signature.kinds import Variant
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.files import write_whole
from gpu_casebook.manifest.case import Case, nearest
from gpu_casebook.packages.lock import pins
from gpu_casebook.revision import own_revision
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan, Skipped, make_plan


class Stopped(StrEnum):
    """What becomes of a search that was begun and stopped: `EITHER` goes on with one if it asked the same."""

    ASK = "options"
    RESUME = "resume"
    FORGET = "forget"
    EITHER = "either"


def planned(case: Case, options: Options, engine: Engine) -> Plan:
    """Return where a search tries its versions. Raises MachineError where no environment can run here."""
    plan = make_plan(case, options, engine)
    if isinstance(plan, Skipped):
        raise MachineError(f"no environment of {case.id} can run here: {'; '.join(plan.reasons)}")
    return plan


def held(pinned: Iterable[str]) -> dict[str, str]:
    """Return the versions that --with asks for, by package. Raises UsageError."""
    versions: dict[str, str] = {}
    for text in pinned:
        try:
            versions |= pins([text])
        except ValueError as error:
            raise UsageError(f"--with {text}: {error}") from None
    return versions


def bisect(
    plan: Plan,
    question: Question,
    engine: Engine,
    console: Console,
    reports: Path,
    *,
    seeks_fix: bool,
    pre: bool = False,
    stopped: Stopped = Stopped.ASK,
) -> tuple[Bisection, Path]:
    """Return the finished record, and its page. Whatever is asked wrongly is found before anything is installed.

    Names and versions of the `question` may be written in any way. Raises UsageError for what is asked wrongly, and
    EndError where an end is not what it was said to be.
    """
    sought = failure(plan.case, plan.environment, question.variant, question.expect_message, question.good_message)
    record = _new_record(plan, question, sought.lines, seeks_fix=seeks_fix, pre=pre)
    path = record_path(reports, plan.case.id, record.question.package)
    unfinished = unfinished_path(path)
    record = _begun(record.question, unfinished, stopped) or record
    _say(record, console)
    counts = trial_counts(plan, question.trials)
    with environments(plan, question.variant, engine, sought, console) as tried:
        bisector = Bisector(record, tried.at, counts, console, save=lambda now: now.write(unfinished))
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


# From the question to a record


def _new_record(plan: Plan, asked: Question, sought: list[str], *, seeks_fix: bool, pre: bool) -> Bisection:
    """Return the record that a search starts with.

    Raises UsageError for a package that the environment does not pin, or for ends that do not exist, were yanked, or
    are the wrong way round.
    """
    python, pinned = plan.spec.python, pins(plan.case.requirements(plan.environment, asked.variant))
    package = canonicalize_name(asked.package)
    if package not in pinned:
        where = f"environment {plan.environment} of {plan.case.id} does not pin it"
        raise UsageError(f"--package {asked.package}: {where}{nearest(package, pinned)}")
    del pinned[package]
    for name, version in asked.others.items():
        if name not in pinned:
            what = f"name another package that the case pins{nearest(name, pinned)}"
            raise UsageError(f"--with {name}=={version}: {what}")
    releases = released(package)
    ends = (asked.bad, asked.good) if seeks_fix else (asked.good, asked.bad)
    low, high = (_end(releases, text, python) for text in ends)
    _check_order(low.version, high.version, package, seeks_fix=seeks_fix)
    good, bad = (high, low) if seeks_fix else (low, high)
    changes = {"package": package, "good": str(good.version), "bad": str(bad.version)}
    question = asked.model_copy(update=changes)
    between = [each for each in releases.all if low.version < each.version < high.version]
    any_pre = pre or low.version.is_prerelease or high.version.is_prerelease
    barred = {str(each.version): each.barred(python, pre=any_pre) for each in between}
    return Bisection(
        question=question,
        versions=[str(low.version), *(version for version, why in barred.items() if not why), str(high.version)],
        passed_over={version: why for version, why in barred.items() if why},
        signature=sought,
        started=datetime.now(UTC),
        command=_command(question, plan, pre=pre),
        runner=own_revision(),
    )


def _end(releases: Releases, text: str, python: str) -> Release:
    found = releases.find(text)
    if why := found.unfit(python):
        raise UsageError(f"{releases.package} {text} can't be installed here: {why}")
    return found


def _check_order(low: Version, high: Version, package: str, *, seeks_fix: bool) -> None:
    """Raise UsageError, with what to write instead, unless the older end is the older one."""
    if low == high:
        raise UsageError(f"nothing is between {low} and itself; name two releases of {package}")
    if low > high and seeks_fix:
        introduced = f"to look for the release that introduced it, write --good {high} --bad {low}"
        raise UsageError(f"--fixed-in {high} is older than --bad {low}; {introduced}")
    if low > high:
        fix = f"to look for the release that fixed it, write --bad {high} --fixed-in {low}"
        raise UsageError(f"--good {low} is newer than --bad {high}; {fix}")


def _command(question: Question, plan: Plan, *, pre: bool) -> str:
    """Return the command that does the same again."""
    ends = {"--good": question.good, "--bad": question.bad}
    if question.seeks_fix:
        ends = {"--bad": question.bad, "--fixed-in": question.good}
    given: dict[str, object] = {"--package": question.package, **ends, "--expect-message": question.expect_message}
    given |= {"--good-message": question.good_message, "--trials": question.trials}
    given["--alpha"] = question.alpha if question.alpha != plan.case.manifest.alpha else None
    given["--variant"] = question.variant.value if question.variant is not Variant.REPRO else None
    words = ["nox", "-s", "bisect", "--", question.case]
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    words += [word for name, version in question.others.items() for word in ("--with", f"{name}=={version}")]
    words += replace(plan.options, environment=question.environment).words(question.engine)
    return shlex.join([*words, *["--pre"] * pre])
