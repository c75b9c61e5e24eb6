"""What one trial of a version says about the failure. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pydantic import ValidationError

from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Observation, Outcome
from gpu_casebook.judging.description import FIGURES_SHOWN, ending, number
from gpu_casebook.judging.expectation import judge, lines, observe
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import Expectation
from gpu_casebook.patterns import find
from gpu_casebook.text import one_line
from gpu_casebook.trial import TrialResult


class Sign(StrEnum):
    """What a trial says about the failure: it has it, has it not, failed in another way, or the machine spoiled it."""

    SHOWS = "shows"
    QUIET = "quiet"
    OTHER = "other"
    SPOILED = "spoiled"


class Reading(NamedTuple):
    """What one trial says, and how it ended, on one line."""

    sign: Sign
    summary: str


@dataclass(frozen=True)
class Signature:
    """The failure that is looked for, in single trials."""

    shows: tuple[Expectation, ...]  # a trial that does what any of these asks has the failure
    known: tuple[Expectation, ...] = ()  # a trial that does what any of these asks has not: other wordings, say
    proof: Expectation | None = None  # what a trial without the failure must do
    telling: tuple[str, ...] = ()  # figures whose bounds differ between repro and fixed: a summary names them

    @property
    def lines(self) -> list[str]:
        """What shows the failure, as text."""
        return list(dict.fromkeys(line for each in self.shows for line in lines(each)))

    def read(self, result: TrialResult) -> Reading:
        """Return what a trial says about the failure."""
        seen = observe(result)
        if shown := _matching(self.shows, result, seen):
            return Reading(Sign.SHOWS, self._summary(seen, shown))
        if spoiled := judge(self.shows[0], result, seen).infra:
            return Reading(Sign.SPOILED, spoiled)
        if known := _matching(self.known, result, seen):
            return Reading(Sign.QUIET, self._summary(seen, known))
        if seen.failed:
            return Reading(Sign.OTHER, self._summary(seen))
        if unproven := self._unproven(result, seen):
            return Reading(Sign.OTHER, unproven[0])
        return Reading(Sign.QUIET, self._summary(seen))

    def _summary(self, seen: Observation, matched: Expectation | None = None) -> str:
        """Return how it ended; where a declared message was found, with the line that has it."""
        if matched and matched.message and seen.exception:
            texts = [seen.message or "", *reversed(seen.causes)]
            if line := next((line for line in "\n".join(texts).splitlines() if find(matched.message, line)), None):
                return one_line(f"{seen.exception}: {line.removeprefix(f'{seen.exception}: ')}")
        if seen.failed:
            return ending(seen)
        names = [name for name in self.telling or seen.figures if name in seen.figures]
        return ", ".join(
            ["ran to its end", *(f"{name}={number(seen.figures[name])}" for name in names[:FIGURES_SHOWN])]
        )

    def _unproven(self, result: TrialResult, seen: Observation) -> list[str]:
        """Return why a trial that ran to its end does not show that the failure is not there; none where it does."""
        mismatches = judge(self.proof, result, seen).mismatches if self.proof else ()
        figures = [name for each in self.shows if not each.must_fail for name in each.figures]
        missing = [f"ran to its end, but did not print {name}" for name in figures if name not in seen.figures]
        return [*mismatches, *missing]


def _matching(expected: tuple[Expectation, ...], result: TrialResult, seen: Observation) -> Expectation | None:
    return next((each for each in expected if judge(each, result, seen).outcome is Outcome.AS_EXPECTED), None)


def signature(
    case: Case,
    environment: str,
    variant: Variant,
    expect_message: str | None = None,
    good_message: str | None = None,
) -> Signature:
    """Return what the case declares of repro in this environment, in any wording that it declares in any environment.

    With `expect_message` only that wording shows the failure, and the declared ones that differ from it do not, nor
    does `good_message`. Raises UsageError where single trials can't tell, or the message is no regular expression.
    """
    declared = case.expectation(environment, Variant.REPRO)
    if declared.differs:
        what = f"{', '.join(declared.differs)} differing between runs"
        raise UsageError(f"{case.id} shows in {what}, and a bisection judges single ones")
    alone = not (declared.must_fail or declared.figures or declared.message or declared.growth)
    if declared.sanitizer and alone:
        raise UsageError(f"{case.id} shows under compute-sanitizer only, and a bisection runs without it")
    messages = [case.expectation(name, Variant.REPRO).message for name in case.manifest.environments]
    others = [_worded(declared, each) for each in dict.fromkeys(messages) if each and each != declared.message]
    wordings = (declared, *others)
    fixed = case.expectation(environment, Variant.FIXED)
    telling = tuple(declared.figures_unlike(fixed))
    proof = fixed if variant is Variant.FIXED else None
    good = (_worded(declared, good_message, "--good-message"),) if good_message else ()
    if expect_message is None:
        return Signature(wordings, good, proof, telling)
    shows = (_worded(declared, expect_message, "--expect-message"),)
    return Signature(shows, (*wordings, *good), proof, telling)


def _worded(declared: Expectation, message: str, option: str = "") -> Expectation:
    try:
        return declared.overridden_by(Expectation(message=message))
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"{option} {message}: {why}") from None
