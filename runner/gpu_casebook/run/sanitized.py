"""Trials under compute-sanitizer of a case that declares a finding.

These trials belong to the verdict (see `judging.sanitized`); probes do not.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from failure_signature.expectation import SanitizerFinding
from failure_signature.judging.outcome import observe
from failure_signature.judging.sanitized import SANITIZED_TRIALS, judge_fixed, judge_repro, report
from failure_signature.kinds import Variant
from failure_signature.trials import Outcome, Trial
from gpu_casebook.run.probes import Bench
from gpu_casebook.run.probes.sanitizer import under
from gpu_casebook.run.record import judged, summary_of

SANITIZED_SLOWDOWN = 5.0
"""A sanitized trial may take this many times as long as an ordinary one."""


def sanitized_trials(bench: Bench) -> Sequence[Trial]:
    """Run both variants under the tool whose finding the case declares; return no trials if it declares none.

    They run side by side. If one went otherwise, sharing may be the reason: both run again, one after the other.
    """
    declared = bench.plan.case.expectation(bench.plan.environment, Variant.REPRO).sanitizer
    if declared is None:
        return []
    trials = _trials(bench, declared, bench.at_once)
    odd = next((trial for trial in trials if trial.outcome is not Outcome.AS_EXPECTED), None)
    if odd and bench.at_once > 1 and not bench.guard.given_up:
        bench.console.say(f"  beside others, {summary_of(odd)}; repeated one after the other")
        trials = _trials(bench, declared, 1)
    return trials


def _trials(bench: Bench, declared: SanitizerFinding, at_once: int) -> list[Trial]:
    wanted = [(variant, number) for variant in Variant for number in range(1, SANITIZED_TRIALS + 1)]
    trials: list[Trial] = []
    with bench.console.task(f"{bench.plan.case.id} under {declared.tool}", len(wanted)) as advance:
        for trial in bench.guard.side_by_side([partial(_trial, bench, *which, declared) for which in wanted], at_once):
            trials.append(trial)
            advance(summary_of(trial))
    return trials


def _trial(bench: Bench, variant: Variant, number: int, declared: SanitizerFinding) -> Trial:
    limits = replace(bench.plan.limits, timeout_s=bench.plan.limits.timeout_s * SANITIZED_SLOWDOWN)
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
