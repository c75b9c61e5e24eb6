"""Is it this failure? What one process printed and how it ended, read against what the failure looks like. Pure.

One rule answers this question for every verb, and for anybody else who imports `Expectation`, `Signature`, `ended` and
`Sign`. Its steps, of which the first that applies decides:

1. The run shows the failure if it meets one of the expectations: everything holds that this expectation names. There
   is one exception. Where an expectation names a way to fail (an exception, a signal, a CUDA error, a hang), a figure
   beside it must hold if it was printed, and may be missing. Why: a process that fails can end before it prints, and
   a reduced program prints less than the script it was made from.
2. If the machine is to blame (a full disk, no driver), the run can't tell.
3. If the run meets one of the `known` expectations, the failure is absent.
4. If the run failed in any other way, or ran into its time limit, that is another failure.
5. If the failure is measured (the expectation names figures or a growth, and no way to fail), and the run did not print
   all of that, the run can't tell. Why: a run without the measurement would look like a run without the failure.
6. If `proof` is given and the run does not do what it asks, that counts as another failure. Why: a script that skips
   its check ends well too. Only scripts that promise a proof (fixed.py) are asked for it; any other command has none.
7. Otherwise the failure is absent.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from failure_signature.expectation import Expectation
from failure_signature.judging.description import FIGURES_SHOWN, ending, number
from failure_signature.judging.outcome import Judgement, growth, judge, lines, observe
from failure_signature.patterns import find
from failure_signature.result import TrialResult, status_and_signal
from failure_signature.text import one_line
from failure_signature.trials import Observation, Outcome

__all__ = ["Expectation", "Reading", "Sign", "Signature", "TrialResult", "ended"]


class Sign(StrEnum):
    """What one run says about a failure."""

    SHOWS = "shows"
    """It is this failure."""
    ABSENT = "absent"
    """The run came to its end without the failure, and would have shown it."""
    OTHER = "other"
    """The run failed in another way, or ended well without its proof."""
    UNKNOWN = "unknown"
    """The run can't tell: the machine is to blame, or what the failure is measured by was not printed."""


class Reading(NamedTuple):
    """What one run says."""

    sign: Sign
    summary: str  # how the run ended, or why it can't tell, on one line
    shown: tuple[Expectation, ...] = ()  # the expectations that it meets
    mismatches: tuple[str, ...] = ()  # else what differs from the first expectation, line by line
    infra: str | None = None  # why the machine is to blame


def ended(status: int, stdout: str, stderr: str | None = None) -> TrialResult:
    """Return how a process ended, as `Signature.read` takes it.

    `status` is an exit status, or negative for a signal, as `subprocess.CompletedProcess.returncode` is. Leave `stderr`
    out if `stdout` is both streams in one, such as the log of a CI job.
    """
    exit_status, signal = status_and_signal(status)
    stderr = stdout if stderr is None else stderr
    return TrialResult(stdout=stdout, stderr=stderr, duration_s=0.0, exit_status=exit_status, signal=signal)


class Signature:
    """How a failure shows in one run: as any of these expectations.

    A run that meets one of `known` fails in a way that is not looked for, such as with another message: the failure is
    absent. `proof` is what a run without the failure must do. `telling` names the figures that a summary shows.
    `differs` and `sanitizer` of an expectation are not asked here: one run of a process can't show them.
    """

    def __init__(
        self,
        expectation: Expectation,
        *others: Expectation,
        known: Sequence[Expectation] = (),
        proof: Expectation | None = None,
        telling: Sequence[str] = (),
    ) -> None:
        self.expectations, self.known, self.proof, self.telling = (expectation, *others), known, proof, telling

    @property
    def lines(self) -> list[str]:
        """What shows the failure, as text."""
        return list(dict.fromkeys(line for each in self.expectations for line in lines(each)))

    def read(self, result: TrialResult, seen: Observation | None = None) -> Reading:
        """Return what a run says about the failure. `seen` is what `observe` gave for it, if that is known."""
        seen = seen or observe(result)
        judged = [(each, _judged(each, result, seen)) for each in self.expectations]
        if shown := tuple(each for each, judgement in judged if judgement.outcome is Outcome.AS_EXPECTED):
            return Reading(Sign.SHOWS, self._summary(seen, shown[0]), shown)
        _, mismatches, infra = judged[0][1]
        sign, summary = self._without(result, seen)
        return Reading(Sign.UNKNOWN if infra else sign, infra or summary, (), mismatches, infra)

    def _without(self, result: TrialResult, seen: Observation) -> tuple[Sign, str]:
        """Return what a run says that does not show the failure, if the machine is not to blame."""
        for each in self.known:
            if _judged(each, result, seen).outcome is Outcome.AS_EXPECTED:
                return Sign.ABSENT, self._summary(seen, each)
        if seen.failed:
            return Sign.OTHER, self._summary(seen)
        if missing := [name for each in self.expectations for name in _unmeasured(each, seen)]:
            return Sign.UNKNOWN, f"ran to its end, but did not print {missing[0]}"
        if self.proof and (unproven := judge(self.proof, result, seen).mismatches):
            return Sign.OTHER, unproven[0]
        return Sign.ABSENT, self._summary(seen)

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


def _judged(expected: Expectation, result: TrialResult, seen: Observation) -> Judgement:
    """Judge without the figures that a failing run may leave out."""
    if expected.must_fail:
        printed = {*seen.figures, *seen.contradicted}
        figures = {name: bound for name, bound in expected.figures.items() if name in printed}
        expected = expected.model_copy(update={"figures": figures})
    return judge(expected, result, seen)


def _unmeasured(expected: Expectation, seen: Observation) -> list[str]:
    """Return what the failure is measured by and was not printed, or with different values, or too few steps of it."""
    if expected.must_fail:
        return []
    series = [expected.growth.series] if expected.growth and growth(expected.growth, seen) is None else []
    return [*(name for name in expected.figures if name not in seen.figures), *series]
