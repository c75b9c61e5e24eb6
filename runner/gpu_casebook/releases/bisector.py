"""A bisection, step by step: the ends first, then the middle of what is open, each trial on disk at once."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.utils import canonicalize_name

from gpu_casebook.console import Console
from gpu_casebook.errors import CasebookError, ExitStatus, MachineError
from gpu_casebook.evidence import Rate
from gpu_casebook.records.bisection import Bisection, Call, Step
from gpu_casebook.releases import halving
from gpu_casebook.releases.environments import Environments, TriedEnvironment, Unusable
from gpu_casebook.releases.signature import Reading, Sign
from gpu_casebook.run.plan import Plan
from gpu_casebook.statistics import clean_trials_needed, wilson
from gpu_casebook.trial import Note

Now = Callable[[], datetime]

MEASURED = 20
"""The most trials that measure the rate, where the case does not say how many."""


class EndError(CasebookError):
    """A version that was said to be good or bad is not."""

    exit_status = ExitStatus.WRONG_END


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """How many trials to run."""

    refute: int  # as many quiet ones show that the failure does not occur at all
    most: int  # at most so many measure the rate
    exact: bool  # whether all of those are run
    limit: int  # the most quiet ones that a version may need


def trial_counts(plan: Plan, trials: int | None) -> TrialCounts:
    """How many trials this case wants: those it declares, or as many as show an unknown rate well enough."""
    manifest, asked = plan.case.manifest, plan.terms
    most = manifest.trials if asked.rate else max(manifest.trials, MEASURED)
    return TrialCounts(
        refute=asked.repro_needed, most=trials or most, exact=trials is not None, limit=manifest.clean_trials
    )


@dataclass
class Bisector:
    """Finishes `record`, which may have steps already. `save` gets it after every trial."""

    record: Bisection
    environments: Environments
    counts: TrialCounts
    console: Console
    save: Callable[[Bisection], None]
    now: Now = lambda: datetime.now(UTC)

    def run(self) -> Bisection:
        """Raises EndError where an end is not what it was said to be, MachineError where trials can't be had."""
        question = self.record.question
        self._verify_bad(question.bad)
        self._verify_good(question.good)
        while version := halving.next_version(self.line, self.record.calls):
            self._call(version)
        return self._finish()

    @property
    def line(self) -> list[str]:
        """From the good end to the bad end."""
        versions = self.record.versions
        return versions[::-1] if self.record.question.seeks_fix else versions

    # The ends

    def _verify_bad(self, version: str) -> None:
        step = self._measured(version)
        if step.call is Call.BAD:
            self._demand(step)
        elif step.call is Call.SKIP:
            raise EndError(f"{self._named(version)} was said to be bad, and can't tell: {step.why}")
        else:
            self._other_end(step)

    def _measured(self, version: str) -> Step:
        return self._step(version, self._bad_end, "measuring how often it fails")

    def _bad_end(self, step: Step) -> Call | None:
        if step.shown == 0:
            if step.other:
                return Call.SKIP
            return Call.GOOD if step.trials >= max(self.counts.refute, self.counts.most * self.counts.exact) else None
        if step.trials >= self.counts.most:
            return Call.BAD
        enough = self._needed(step) <= step.trials
        return Call.BAD if enough and not self.counts.exact else None

    def _needed(self, step: Step) -> int:
        return clean_trials_needed(wilson(step.shown, step.trials).low, self.alpha)

    @property
    def alpha(self) -> float:
        """The risk for one call of good: a wrong one moves the answer past any of these versions."""
        return self.record.question.alpha / (len(self.record.versions) - 1)

    def _demand(self, step: Step) -> None:
        low, high = wilson(step.shown, step.trials)
        needed = self._needed(step)
        if needed > self.counts.limit:
            seldom = f"it fails in {step.shown} of {step.trials} trials with {self._named(step.version)}"
            wish = f"{needed} quiet trials would be needed of each good version, and {self.counts.limit} are allowed"
            raise EndError(f"{seldom}, so {wish}; measure it with more trials: --trials N")
        rate = Rate(k=step.shown, n=step.trials, low=low, high=high)
        self._update(rate=rate, quiet_needed=needed)

    def _other_end(self, bad: Step) -> None:
        """The bad end is quiet: perhaps the two were mixed up."""
        question = self.record.question
        other = self._step(question.good, self._until_shown, "is it the other way round?")
        quiet = f"{self._named(bad.version)} was said to be bad, and {bad.quiet} trials are without the failure"
        if other.shown:
            old, new = question.good, question.bad
            write = f"--good {new} --bad {old}" if question.seeks_fix else f"--bad {old} --fixed-in {new}"
            raise EndError(f"good and bad are the wrong way round: {old} fails, {new} does not; write {write}")
        raise EndError(f"{quiet}: {bad.why}")

    def _until_shown(self, step: Step) -> Call | None:
        if step.shown:
            return Call.BAD
        if step.other:
            return Call.SKIP
        return Call.GOOD if step.quiet >= self.counts.refute else None

    def _verify_good(self, version: str) -> None:
        step = self._call(version)
        if step.call is Call.BAD:
            raise EndError(f"{self._named(version)} was said to be good, and fails: {step.why}")
        if step.call is Call.SKIP:
            raise EndError(f"{self._named(version)} was said to be good, and can't tell: {step.why}")

    # Steps

    def _call(self, version: str) -> Step:
        return self._step(version, self._judged, "")

    def _judged(self, step: Step) -> Call | None:
        if step.shown:
            return Call.BAD
        if step.other:
            return Call.SKIP
        assert self.record.quiet_needed
        return Call.GOOD if step.quiet >= self.record.quiet_needed else None

    def _step(self, version: str, judge: Callable[[Step], Call | None], why: str) -> Step:
        """The step of a version, from where it was left, until it can be called."""
        step = self._known(version)
        if step.call is None:
            with self.console.step(f"{self._named(version)}{f' ({why})' if why else ''}") as note:
                step = self._tried(step, judge, note)
            self.console.say(f"  {version}: {summary(step)}")
        return step

    def _known(self, version: str) -> Step:
        known = next((step for step in self.record.steps if step.version == version), None)
        return known or Step(version=version, started=self.now())

    def _tried(self, step: Step, judge: Callable[[Step], Call | None], note: Note) -> Step:
        begun, before = time.monotonic(), step.seconds
        asked = self.record.question
        try:
            with self.environments.at(
                {**asked.others, canonicalize_name(asked.package): step.version}, note
            ) as environment:
                while step.call is None:
                    step = self._tallied(step, environment)
                    step = step.model_copy(update={"call": judge(step), "seconds": before + time.monotonic() - begun})
                    self._keep(step)
                    note(f"trial {step.trials}: {step.why}")
        except Unusable as why:
            step = step.model_copy(update={"call": Call.SKIP, "why": str(why)})
            step = step.model_copy(update={"seconds": before + time.monotonic() - begun})
            self._keep(step)
        return step

    def _tallied(self, step: Step, environment: TriedEnvironment) -> Step:
        reading = environment.run_trial()
        if reading.sign is Sign.SPOILED:
            why = f"a trial with {self._named(step.version)} was spoiled again and again: {reading.summary}"
            raise MachineError(f"{why}; fix that, and go on with --resume")
        return step.model_copy(update=_counted(step, reading) | {"lock": environment.lock})

    def _keep(self, step: Step) -> None:
        others = [each for each in self.record.steps if each.version != step.version]
        self._update(steps=[*others, step])

    def _update(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        self.save(self.record)

    def _finish(self) -> Bisection:
        record = self.record
        assert record.rate
        quiet = {step.version: step.quiet for step in record.steps}
        self._update(
            first=halving.first(self.line, record.calls, fixed=record.question.seeks_fix),
            doubt=halving.doubt(self.line, record.calls, quiet, record.rate.low),
            ended=record.ended or self.now(),
        )
        return self.record

    def _named(self, version: str) -> str:
        return f"{self.record.question.package} {version}"


def _counted(step: Step, reading: Reading) -> dict[str, object]:
    """What told most is what is remembered: how it failed, if it did."""
    match reading.sign:
        case Sign.SHOWS:
            return {"shown": step.shown + 1, "why": reading.summary}
        case Sign.OTHER:
            return {"other": step.other + 1} | ({} if step.shown else {"why": reading.summary})
        case _:
            return {"quiet": step.quiet + 1} | ({} if step.shown or step.other else {"why": reading.summary})


def summary(step: Step) -> str:
    """Return on one line how a version was called, and why."""
    if step.trials == 0:
        return f"{step.call}: {step.why}"
    share = f"{step.shown} of {step.trials} trials with the failure"
    return f"{step.call} ({share}, {step.seconds:.1f} s): {step.why}"
