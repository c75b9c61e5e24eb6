"""What one trial of a version says about the failure. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pydantic import ValidationError

from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Observation, Outcome, Variant
from gpu_casebook.judging.description import FIGURES_SHOWN, ending, number, telling_line
from gpu_casebook.judging.expectation import judge, lines, observe
from gpu_casebook.manifest.case import Case
from gpu_casebook.manifest.model import Expectation
from gpu_casebook.text import one_line
from gpu_casebook.trial import TrialResult


class Sign(StrEnum):
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
    """The failure that is looked for: a trial that does what any of `shows` asks has it.

    `known` are failures that are not the one looked for, and no accident either: the same error in another wording.
    `proof` is what a trial without the failure must do, where it must do something.
    """

    shows: tuple[Expectation, ...]
    known: tuple[Expectation, ...] = ()
    proof: Expectation | None = None
    telling: tuple[str, ...] = ()
    """The figures that tell repro from fixed: what is told of a trial that ran to its end."""

    @property
    def lines(self) -> list[str]:
        """What shows the failure, readable."""
        return list(dict.fromkeys(line for each in self.shows for line in lines(each)))

    def read(self, result: TrialResult) -> Reading:
        """A trial shows the failure, keeps quiet, or fails in another way, unless the machine spoiled it."""
        seen = observe(result)
        if shown := _matching(self.shows, result, seen):
            return Reading(Sign.SHOWS, self._summary(seen, shown))
        if spoiled := judge(self.shows[0], result, seen).infra:
            return Reading(Sign.SPOILED, spoiled)
        if known := _matching(self.known, result, seen):
            return Reading(Sign.QUIET, self._summary(seen, known))
        if seen.failed:
            return Reading(Sign.OTHER, self._summary(seen))
        missing = next(self._unproven(result, seen), None)
        return Reading(Sign.OTHER, missing) if missing else Reading(Sign.QUIET, self._summary(seen))

    def _summary(self, seen: Observation, matched: Expectation | None = None) -> str:
        """How it ended; where a declared message was found, with the line that has it."""
        if matched and matched.message and seen.exception:
            texts = [seen.message or "", *reversed(seen.causes)]
            if line := next((line for line in "\n".join(texts).splitlines() if re.search(matched.message, line)), None):
                return one_line(f"{seen.exception}: {line.removeprefix(f'{seen.exception}: ')}")
        if seen.exception and seen.causes and not re.search(r"\w", telling_line(seen.message or "")):
            return one_line(f"{seen.exception}, caused by {seen.causes[-1]}")
        if seen.failed:
            return ending(seen)
        names = [name for name in self.telling or seen.figures if name in seen.figures]
        return ", ".join(
            ["ran to its end", *(f"{name}={number(seen.figures[name])}" for name in names[:FIGURES_SHOWN])]
        )

    def _unproven(self, result: TrialResult, seen: Observation) -> Iterator[str]:
        """Why a trial that ran to its end does not show that the failure is not there."""
        if self.proof:
            yield from judge(self.proof, result, seen).mismatches
        passing = [each for each in self.shows if not each.must_fail]
        for name in dict.fromkeys(name for each in passing for name in each.figures):
            if name not in seen.figures:
                yield f"ran to its end, but did not print {name}"


def _matching(expected: tuple[Expectation, ...], result: TrialResult, seen: Observation) -> Expectation | None:
    return next((each for each in expected if judge(each, result, seen).outcome is Outcome.AS_EXPECTED), None)


def signature(
    case: Case,
    environment: str,
    variant: Variant,
    expect_message: str | None = None,
    good_message: str | None = None,
) -> Signature:
    """What the case declares of repro in this environment, in any wording that it declares in any environment.

    With `expect_message` only that wording shows the failure, and the declared ones that differ from it do not, nor
    does `good_message`. Raises UsageError where single trials can't tell, or the message is no regular expression.
    """
    declared = case.expectation(environment, Variant.REPRO)
    if declared.differs:
        names = ", ".join(declared.differs)
        raise UsageError(f"{case.id} shows in {names} differing between runs, and a bisection judges single ones")
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
