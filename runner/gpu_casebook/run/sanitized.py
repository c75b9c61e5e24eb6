"""Trials under compute-sanitizer of a case that declares a finding, and the record of any trial.

These trials belong to the verdict (see `judging.sanitized`); probes do not.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpu_casebook.evidence import Observation, Trial
from gpu_casebook.judging.expectation import Judgement, observe
from gpu_casebook.judging.sanitized import TRIALS, judge_fixed, judge_repro, report
from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.model import SanitizerFinding
from gpu_casebook.run.probes import Bench
from gpu_casebook.run.probes.sanitizer import under
from gpu_casebook.trial import TrialResult

SLOWER = 5.0
"""A sanitized trial may take so many times what an ordinary one may."""


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
