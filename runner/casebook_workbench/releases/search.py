"""A bisection, step by step: the ends first, then the middle of what is open, each trial on disk at once."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.utils import canonicalize_name

from casebook_workbench.releases import halving
from casebook_workbench.releases.environments import OpenEnvironment, Unusable
from casebook_workbench.releases.records import Bisection, Call, Step
from failure_signature.judging.signature import Reading, Sign
from failure_signature.statistics import clean_trials_needed, wilson
from failure_signature.trials import Rate
from gpu_casebook.console import Console
from gpu_casebook.errors import CasebookError, ExitStatus
from gpu_casebook.run.plan import Plan
from gpu_casebook.trial import Note

MEASURED = 20
"""The most trials that measure the rate, where the case does not say how many."""

Judge = Callable[[Step], Call | None]
"""What to call a version after the trials so far; None where more are needed."""


class EndError(CasebookError):
    """A version that was said to be good or bad is not."""

    exit_status = ExitStatus.WRONG_END


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """How many trials to run."""

    refute: int  # as many quiet ones show that the failure does not occur at all
    least: int  # at least so many measure the rate at the bad end
    most: int  # and at most so many
    limit: int  # the most quiet ones that a version may need


def trial_counts(plan: Plan, trials: int | None) -> TrialCounts:
    """Return what `trials` asks for at the bad end, or else what the case declares or an unknown rate needs."""
    manifest, terms = plan.case.manifest, plan.terms
    most = manifest.trials if terms.rate else max(manifest.trials, MEASURED)
    return TrialCounts(refute=terms.repro_needed, least=trials or 0, most=trials or most, limit=manifest.clean_trials)


@dataclass(frozen=True)
class Bisector:
    """Finishes `record`, which may have steps already. `save` gets it after every trial."""

    record: Bisection
    open_environment: OpenEnvironment
    counts: TrialCounts
    console: Console
    save: Callable[[Bisection], None]

    def run(self) -> Bisection:
        """Return the finished record.

        Raises EndError where an end is not what it was said to be, MachineError where trials can't be had.
        """
        record = self.record
        self._verify_bad_end()
        self._verify_good_end()
        while version := halving.next_version(record.line, record.calls):
            self._step(version, self._judge)
        assert record.rate
        quiet = {step.version: step.quiet for step in record.steps}
        record.first = halving.first(record.line, record.calls, fixed=record.question.seeks_fix)
        record.doubt = halving.doubt(record.line, record.calls, quiet, record.rate.low)
        record.ended = record.ended or datetime.now(UTC)
        self.save(record)
        return record

    # The ends

    def _verify_bad_end(self) -> None:
        """Measure how often the bad end fails: the number of quiet trials that make a version good follows from it."""
        question = self.record.question
        step = self._step(question.bad, self._judge_bad_end, " (measuring how often it fails)")
        if step.call is Call.GOOD:
            quiet = f"was said to be bad, and {step.quiet} trials are without the failure: {step.why}"
            ends = f"--good {question.bad} --bad {question.good}"
            if not question.seeks_fix:
                ends = f"--bad {question.good} --fixed-in {question.bad}"
            raise EndError(f"{self._named(step.version)} {quiet}; if {question.good} is the bad one, write {ends}")
        if step.call is Call.SKIP:
            raise EndError(f"{self._named(step.version)} was said to be bad, and can't tell: {step.why}")
        needed = self._quiet_needed(step)
        if needed > self.counts.limit:
            seldom = f"it fails in {step.shown} of {step.trials} trials with {self._named(step.version)}"
            wish = f"{needed} quiet trials would be needed of each good version, and {self.counts.limit} are allowed"
            raise EndError(f"{seldom}, so {wish}; measure it with more trials: --trials N")
        low, high = wilson(step.shown, step.trials)
        self.record.rate = Rate(k=step.shown, n=step.trials, low=low, high=high)
        self.record.quiet_needed = needed
        self.save(self.record)

    def _judge_bad_end(self, step: Step) -> Call | None:
        if not step.shown:
            return _call(step, max(self.counts.refute, self.counts.least))
        # Once a good version would need no more trials than these, more of them would not make the search shorter.
        enough = min(max(self._quiet_needed(step), self.counts.least), self.counts.most)
        return Call.BAD if step.trials >= enough else None

    def _quiet_needed(self, step: Step) -> int:
        # The risk is shared out among the versions: one wrong call of good moves the answer past any of them.
        alpha = self.record.question.alpha / (len(self.record.versions) - 1)
        return clean_trials_needed(wilson(step.shown, step.trials).low, alpha)

    def _verify_good_end(self) -> None:
        step = self._step(self.record.question.good, self._judge)
        if step.call is not Call.GOOD:
            what = "fails" if step.call is Call.BAD else "can't tell"
            raise EndError(f"{self._named(step.version)} was said to be good, and {what}: {step.why}")

    # Steps

    def _judge(self, step: Step) -> Call | None:
        assert self.record.quiet_needed
        return _call(step, self.record.quiet_needed)

    def _step(self, version: str, judge: Judge, purpose: str = "") -> Step:
        """Return the step of a version, after it was continued until it can be called."""
        step = next((step for step in self.record.steps if step.version == version), None)
        if step is None:
            step = Step(version=version, started=datetime.now(UTC))
            self.record.steps.append(step)
        if step.call is None:
            with self.console.step(f"{self._named(version)}{purpose}") as note:
                self._run_trials(step, judge, note)
            tally = f"{step.shown} of {step.trials} trials with the failure, {step.seconds:.1f} s"
            self.console.say(f"  {version}: {step.call}{f' ({tally})' if step.trials else ''}: {step.why}")
        return step

    def _run_trials(self, step: Step, judge: Judge, note: Note) -> None:
        question, begun = self.record.question, time.monotonic() - step.seconds
        changes = {**question.others, canonicalize_name(question.package): step.version}
        try:
            with self.open_environment(changes, note) as environment:
                step.lock = environment.lock
                while step.call is None:
                    _count(step, environment.run_trial())
                    step.call, step.seconds = judge(step), time.monotonic() - begun
                    self.save(self.record)
                    note(f"trial {step.trials}: {step.why}")
        except Unusable as why:
            step.call, step.why, step.seconds = Call.SKIP, str(why), time.monotonic() - begun
            self.save(self.record)

    def _named(self, version: str) -> str:
        return f"{self.record.question.package} {version}"


def _call(step: Step, quiet_needed: int) -> Call | None:
    if step.shown:
        return Call.BAD
    if step.other:
        return Call.SKIP
    return Call.GOOD if step.quiet >= quiet_needed else None


def _count(step: Step, reading: Reading) -> None:
    """Count a trial. What is remembered is the last one that failed as looked for, or else in another way."""
    if reading.sign is Sign.SHOWS:
        step.shown, step.why = step.shown + 1, reading.summary
    elif reading.sign is Sign.ABSENT:
        step.quiet, step.why = step.quiet + 1, step.why if step.shown or step.other else reading.summary
    else:
        step.other, step.why = step.other + 1, step.why if step.shown else reading.summary
