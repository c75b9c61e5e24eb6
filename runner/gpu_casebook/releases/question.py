"""From the options of the command to the question, and to the record that a bisection starts with."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from packaging.utils import canonicalize_name

from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Variant
from gpu_casebook.manifest.model import pin
from gpu_casebook.packages.lock import same_version
from gpu_casebook.records.bisection import Bisection, Question
from gpu_casebook.releases.environments import names
from gpu_casebook.releases.signature import Signature
from gpu_casebook.releases.versions import Listing, Release, Releases, nearest
from gpu_casebook.revision import own_revision
from gpu_casebook.run.options import Options
from gpu_casebook.run.plan import Plan


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


def question(options: BisectOptions, plan: Plan, engine: str) -> Question:
    """Raises UsageError for a package that the environment does not pin, or for ends that can't be."""
    case = plan.case
    package, there = canonicalize_name(options.package), names(case.requirements(plan.environment, options.variant))
    if package not in there:
        where = f"environment {plan.environment} of {case.id} does not pin it"
        raise UsageError(f"--package {options.package}: {where}{nearest(package, there)}")
    good = options.good or options.fixed_in
    if not good or (options.good and options.fixed_in):
        raise UsageError("name one other end: --good VERSION, older than --bad, or --fixed-in VERSION, newer than it")
    return Question(
        others=_others(options, package, there),
        case=case.id,
        package=package,
        environment=plan.environment,
        variant=options.variant,
        good=good,
        bad=options.bad,
        expect_message=options.expect_message,
        good_message=options.good_message,
        trials=options.trials,
        alpha=options.alpha or case.manifest.alpha,
        engine=engine,
        digest=case.digest(),
    )


def _others(options: BisectOptions, package: str, there: Sequence[str]) -> dict[str, str]:
    """Other packages and the versions they are held at."""
    held = {}
    for text in options.others:
        try:
            name, version = pin(text).split("==")
        except ValueError as error:
            raise UsageError(f"--with {text}: {error}") from None
        if name == package or name not in there:
            raise UsageError(
                f"--with {text}: name another package that the case pins{nearest(name, {*there} - {package})}"
            )
        held[name] = version
    return held


def record(asked: Question, options: BisectOptions, plan: Plan, seen: Signature, listing: Listing) -> Bisection:
    """A new one. Raises UsageError for ends that do not exist, were yanked, or are the wrong way round."""
    releases = listing(asked.package)
    low, high = _ends(asked, options, releases, plan.spec.python)
    good, bad = (low, high) if options.good else (high, low)
    found = releases.between(low, high)
    pre = options.pre or low.version.is_prerelease or high.version.is_prerelease
    barred = {str(each.version): each.barred(plan.spec.python, pre=pre) for each in found}
    return Bisection(
        question=asked.model_copy(update={"good": str(good.version), "bad": str(bad.version)}),
        versions=[str(low.version), *(version for version, why in barred.items() if not why), str(high.version)],
        passed_over={version: why for version, why in barred.items() if why},
        signature=seen.lines,
        started=datetime.now(UTC),
        command=command(asked, options),
        runner=own_revision(),
    )


def _ends(asked: Question, options: BisectOptions, releases: Releases, python: str) -> tuple[Release, Release]:
    """The older end and the newer one."""
    ends = (asked.good, asked.bad) if options.good else (asked.bad, asked.good)
    low, high = (_end(releases, each, python) for each in ends)
    if low.version == high.version:
        raise UsageError(f"nothing is between {low.version} and itself; name two releases of {asked.package}")
    if low.version > high.version:
        raise UsageError(_wrong_way(options, low, high))
    return low, high


def _end(releases: Releases, text: str, python: str) -> Release:
    found = releases.find(text)
    if why := found.unfit(python):
        raise UsageError(f"{releases.package} {text} can't be installed here: {why}")
    return found


def _wrong_way(options: BisectOptions, low: Release, high: Release) -> str:
    if options.good:
        fix = f"to look for the release that fixed it, write --bad {high.version} --fixed-in {low.version}"
        return f"--good {low.version} is newer than --bad {high.version}; {fix}"
    introduced = f"to look for the release that introduced it, write --good {high.version} --bad {low.version}"
    return f"--fixed-in {high.version} is older than --bad {low.version}; {introduced}"


def same(one: Question, other: Question) -> bool:
    """Whether steps of one are steps of the other: versions may be written in several ways."""
    ends = {"good": one.good, "bad": one.bad}
    pairs = [(one.good, other.good), (one.bad, other.bad)]
    return other.model_copy(update=ends) == one and all(same_version(*pair) for pair in pairs)


def command(asked: Question, options: BisectOptions) -> str:
    """The command that does the same again."""
    good = "--good" if options.good else "--fixed-in"
    words = ["nox", "-s", "bisect", "--", asked.case, "--package", asked.package]
    words += [good, asked.good, "--bad", asked.bad] if options.good else ["--bad", asked.bad, good, asked.good]
    words += replace(options.run, environment=asked.environment).words(asked.engine)
    given: dict[str, object] = {"--expect-message": asked.expect_message, "--good-message": asked.good_message}
    given |= {"--trials": asked.trials, "--alpha": options.alpha}
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    words += [word for name, version in asked.others.items() for word in ("--with", f"{name}=={version}")]
    words += ["--variant", asked.variant.value] if asked.variant is not Variant.REPRO else []
    words += ["--pre"] * options.pre
    return shlex.join(words)
