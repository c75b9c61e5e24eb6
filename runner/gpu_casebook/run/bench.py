"""What instruments work with, and the trials under compute-sanitizer of a case that declares a finding.

Those trials belong to the verdict (see `judging.sanitized`); probes do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpu_casebook.console import Console
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.guard import Guard
from gpu_casebook.evidence import Observation, Trial, Variant
from gpu_casebook.judging.expectation import Judgement, observe
from gpu_casebook.judging.sanitized import TRIALS, judge_fixed, judge_repro, report
from gpu_casebook.manifest.model import SanitizerFinding
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.probes.sanitizer import under
from gpu_casebook.trial import Limits, TrialRequest, TrialResult

_GUEST_LIMITS = Limits(timeout_s=120.0, output_bytes=4 * 2**20)

SLOWER = 5.0
"""A sanitized trial may take so many times what an ordinary one may."""


@dataclass(frozen=True)
class Bench:
    """Runs a case's scripts under instruments, in the environments that its ordinary trials had."""

    plan: Plan
    guard: Guard
    console: Console
    environments: Mapping[Variant, Prepared]
    _answers: dict[tuple[str, str], str] = field(default_factory=dict, init=False)

    def run(
        self, variant: Variant, limits: Limits, variables: Mapping[str, str], wrapper: Sequence[str] = ()
    ) -> TrialResult:
        """Run a variant's script once, with more variables or below a wrapper. Raises as engines do."""
        request = TrialRequest(
            files=self.plan.case.payload(),
            arguments=[f"{variant.value}.py"],
            limits=limits,
            variables={**self.plan.spec.variables, **variables},
            gpus=self.plan.gpus,
            wrapper=wrapper,
        )
        return self.guard.run(self.environments[variant], request)

    def ask(self, variant: Variant, guest: Path) -> str:
        """Return what a script of `gpu_casebook.guest` prints in a variant's environment; it runs once in each."""
        prepared = self.environments[variant]
        key = prepared.key, guest.name
        if key not in self._answers:
            self._answers[key] = run_guest(self.guard, prepared, guest).stdout
        return self._answers[key]


def run_guest(guard: Guard, prepared: Prepared, guest: Path, gpus: Sequence[int] = ()) -> TrialResult:
    """Run a script of `gpu_casebook.guest` in an environment."""
    files = {guest.name: guest.read_bytes()}
    return guard.run(prepared, TrialRequest(files=files, arguments=[guest.name], limits=_GUEST_LIMITS, gpus=gpus))


def sanitized_trials(bench: Bench) -> Sequence[Trial]:
    """Run both variants under the tool whose finding the case declares; return no trials if it declares none."""
    declared = bench.plan.case.expectation(bench.plan.environment, Variant.REPRO).sanitizer
    if declared is None:
        return []
    trials = []
    with bench.console.task(f"{bench.plan.case.id} under {declared.tool}", len(Variant) * TRIALS) as advance:
        for variant in Variant:
            for number in range(1, TRIALS + 1):
                trials.append(_trial(bench, variant, number, declared))
                advance(summary_of(trials[-1]))
    return trials


def _trial(bench: Bench, variant: Variant, number: int, declared: SanitizerFinding) -> Trial:
    limits = replace(bench.plan.limits, timeout_s=bench.plan.limits.timeout_s * SLOWER)
    run = under(bench, declared.tool, variant, limits)
    result, seen = run.result, observe(run.result)
    if variant is Variant.REPRO:
        found = report(result, declared.tool, run.version, declared, cached=run.cached)
        judgement = judge_repro(declared, found)
    else:
        found = report(result, declared.tool, run.version, None, cached=run.cached)
        expected = bench.plan.case.expectation(bench.plan.environment, variant)
        judgement = judge_fixed(expected, found, result, seen)
    return judged(variant, number, result, seen, judgement, sanitizer=found)


def judged(
    variant: Variant, number: int, result: TrialResult, seen: Observation, judgement: Judgement, **more: Any
) -> Trial:
    """Return the record of one trial; `more` are fields that only some trials have."""
    return Trial(
        variant=variant,
        number=number,
        outcome=judgement.outcome,
        mismatches=list(judgement.mismatches),
        infra=judgement.infra,
        observation=seen,
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
        **more,
    )


def summary_of(trial: Trial) -> str:
    """Return a trial on one line, for the console."""
    which = f"under {trial.instrument}" if trial.instrument else f"trial {trial.number}"
    reason = trial.infra or next(iter(trial.mismatches), "")
    outcome = f"{trial.variant} {which}: {trial.outcome} ({trial.duration_s:.1f} s)"
    return f"{outcome}: {reason}" if reason else outcome
