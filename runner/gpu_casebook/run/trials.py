"""The trials of a case: both variants in turns, each in a fresh process, until the verdict is settled.

Trials run side by side where it is known how long one takes: from evidence of earlier runs, or else from the first
trial, which runs alone. Which trials are started ahead follows from the assumption that each trial does what is
expected; as soon as one ends, the next one starts. They count in the order in which they would have run one after the
other, and only as far as they would have run at all. So a sequential rule stops where it would have stopped.

If the last attempt of a trial beside others went otherwise and the case is not confirmed, sharing may be the reason.
Then all trials are repeated, one after the other. This is a second chance to be confirmed wrongly, so the repetition
takes more trials. A measured rate is not repeated, because its trials differ anyhow.

Words: a *trial* has a variant and a number. An *attempt* is one process that was started for it. An attempt that the
machine spoiled is repeated under the same number, and both are in the evidence.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import psutil

from failure_signature.judging.decision import Tally, Terms, decide
from failure_signature.judging.outcome import growth, judge, observe
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.text import seconds
from failure_signature.trials import Outcome, Trial, Verdict
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.guard import Guard, attempts
from gpu_casebook.evidence import Sharing
from gpu_casebook.run.attesting import Loaded
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.record import judged, summary_of

TRIAL_BYTES = 4 * 2**30
"""Free memory that each trial beside others needs. Most take less, and a trial that runs out of memory is repeated."""
MORE = {Variant.REPRO: 1, Variant.FIXED: 2}
"""Trials that a repetition takes in addition: 4 and 6 instead of 3 and 4. A fix that does nothing is then confirmed in
0.96 % of runs at worst, both chances together; with 3 and 4 again it would be 1.67 %."""
ROOM = 1.25
"""As many trials run at once as keep (longest trial so far) * (number at once) * ROOM below the timeout, because all of
them may share one core."""

_FORESEEN = 100

_Key = tuple[Variant, int]  # of a trial: its variant and its number


class Attempt(NamedTuple):
    """One process of a trial: its record, and what the engine gave."""

    trial: Trial
    result: TrialResult


def at_once(plan: Plan, engine: Engine) -> int:
    """Return how many trials the case and the machine allow. On GPUs, `devices.ledger` decides what fits as well."""
    if plan.case.alone(plan.environment) or not engine.local:
        return 1
    most = min(hardware.cores(), psutil.virtual_memory().available // TRIAL_BYTES)
    return max(1, min(most, plan.options.at_once or most))


@dataclass
class Progress:
    """What goes on, as a line for a log."""

    guard: Guard
    trials: Sequence[Trial] = ()
    asked: Terms = field(default_factory=lambda: Terms(trials=0))
    running: int = 0
    room: int = 1

    def show(self, trials: Sequence[Trial], asked: Terms, running: int, room: int) -> None:
        """Show this from now on: the trials that have ended, the terms, how many run, and how many may run at once."""
        self.trials, self.asked, self.running, self.room = trials, asked, running, room

    def __str__(self) -> str:
        trials, waiting = list(self.trials), min(self.guard.waiting, self.running)
        parts = [f"{self.running - waiting} running", f"{waiting} waiting for a GPU"][: 2 if waiting else 1]
        if trials:
            usual = statistics.median(trial.duration_s for trial in trials)
            left = len(Tally(trials, self.asked).due(_FORESEEN))
            parts.append(f"about {seconds(usual * math.ceil(left / self.room))} left")
        return ", ".join(parts)


@dataclass
class TrialRunner:
    """Runs the trials of a plan. `files` are the case's, `environments` what each variant runs in."""

    plan: Plan
    guard: Guard
    console: Console
    files: Mapping[str, bytes]
    environments: Mapping[Variant, Prepared]
    longest_s: float = 0.0
    """How long a trial is known to take; 0 if unknown."""
    loaded: dict[Variant, Loaded] = field(default_factory=dict, init=False)
    """What the trials of each variant were seen to load."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.guard)

    def run(self) -> tuple[list[Trial], Sharing | None]:
        """Return all trials in their order, and how they shared the machine, if they did."""
        asked = self.plan.terms
        total = asked.trials + max(asked.trials, asked.clean)
        with self.console.task(self.plan.case.id, total, lambda: str(self.progress)) as advance:
            trials, at_once = self._sequence(asked, advance)
            sharing = Sharing(at_once=at_once, memory_bytes=self.guard.measured) if at_once > 1 else None
            odd = next((trial for trial in _last_attempts(trials) if trial.outcome is not Outcome.AS_EXPECTED), None)
            settled = decide(trials, asked).verdict is Verdict.CONFIRMED or asked.measured or self.guard.given_up
            if sharing and odd and not settled:
                why = summary_of(odd)
                self.console.say(f"  beside others, {why}; repeated one after the other")
                clean = max(asked.trials, asked.clean) + MORE[Variant.FIXED]
                again = replace(asked, trials=asked.trials + MORE[Variant.REPRO], clean=clean)
                trials, _ = self._sequence(again, advance, share=False)
                sharing = sharing.model_copy(update={"repeated": why, "odd": odd})
        if self.guard.given_up:
            self.console.say(f"  no more trials: {self.guard.given_up}")
        elif not Tally(trials, asked).used(Variant.FIXED):
            self.console.say("  fixed is not run: it could not change the verdict")
        return trials, sharing

    def _sequence(self, asked: Terms, advance: Callable[[str], None], *, share: bool = True) -> tuple[list[Trial], int]:
        """Run trials until they settle the verdict; return them, and how many ran at once at most."""
        trials, most = list[Trial](), 1
        ahead = dict[_Key, Future[list[Attempt]]]()  # begun, and not counted yet
        with self.guard.pool(ahead.values(), hardware.cores()) as pool:
            while Tally(trials, asked).next:
                # This comes before the look at the first trial that is due. If it ends in between, it still counts as
                # running, and nothing is started that its outcome may rule out.
                running = [trial for trial in ahead.values() if not trial.done()]
                room = self._most_at_once(trials) if share else 1
                due = Tally(trials, asked).due(room + len(ahead))
                if due[0] in ahead and ahead[due[0]].done():
                    trials += [self._noted(*attempt) for attempt in ahead.pop(due[0]).result()]
                    advance(summary_of(trials[-1]))
                    continue
                for key in due:
                    if len(running) < room and key not in ahead and not self.guard.given_up:
                        ahead[key] = pool.submit(self._attempts, *key)
                        running.append(ahead[key])
                if due[0] not in ahead and self.guard.given_up:
                    break
                most = max(most, len(running))
                self.progress.show(trials, asked, len(running), room)
                wait(running, return_when=FIRST_COMPLETED)
        return trials, most

    def _most_at_once(self, trials: Sequence[Trial]) -> int:
        """Return how many trials may run at once after these."""
        odd = any(trial.outcome is not Outcome.AS_EXPECTED for trial in trials)
        longest = max((trial.duration_s for trial in trials), default=self.longest_s)
        if not longest or (odd and not self.plan.terms.measured):
            return 1
        return max(1, min(at_once(self.plan, self.guard.engine), int(self.plan.limits.timeout_s / (ROOM * longest))))

    def _attempts(self, variant: Variant, number: int) -> list[Attempt]:
        request = self.plan.request(variant, self.files)
        measure = (variant, number) == (Variant.REPRO, 1)

        def once() -> Attempt:
            result = self.guard.run(self.environments[variant], request, measure=measure)
            return Attempt(self._judged(variant, number, result), result)

        return attempts(once, lambda made: made.trial.outcome is Outcome.INFRA and not self.guard.given_up)

    def _judged(self, variant: Variant, number: int, result: TrialResult) -> Trial:
        repro, fixed = (self.plan.case.expectation(self.plan.environment, each) for each in Variant)
        expectation, failure = (repro, None) if variant is Variant.REPRO else (fixed, repro)
        seen = observe(result, f"{variant}.py")
        return judged(
            variant,
            number,
            result,
            seen,
            judge(expectation, result, seen, failure),
            growth=growth(expectation.growth, seen) if expectation.growth else None,
            # They include those of trials that ran beside this one. A process that ended well had none of its own.
            xids=[] if result.exit_status == 0 else self.guard.xids,
        )

    def _noted(self, trial: Trial, result: TrialResult) -> Trial:
        seen = self.loaded.setdefault(trial.variant, Loaded())
        seen.libraries.update(result.libraries)
        seen.pythons.update(result.pythons)
        if result.kept:
            self.console.say(f"  kept: {result.kept}")
        return trial


def _last_attempts(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials without the spoiled attempts that were repeated."""
    return list({(trial.variant, trial.number): trial for trial in trials}.values())
