"""Which trials of a case with a rate are forked, and whether those count. Imported only where there is a rate.

Where a declared rate takes tens of trials, the first of either variant are fresh and the others forked, which takes a
fraction of the time. Mixing them is sound: whether a trial is forked follows from its number, not from what was seen,
and both variants fork from the same number on. So whatever forking does to the failure, a fix that does nothing leaves
trial i of fixed the chance p_i to fail that trial i of repro has, and n clean ones in a row come about with the product
of all 1 - p_i, which is at most (1 - p)^n for their mean p: what the rule reckons with. The mean of fewer trials is
another one where fresh and forked ones differ, so both rates must pass for one, in a test that equal ones fail once in
twenty times. If they don't, the forked ones go, and the fresh ones go on from where they were. Both chances together
confirm a fix that does nothing in 0.3 % of runs at most, whatever forking does to the rate; where it was enough that
the 95 % intervals overlap, that could be 8 % (tests/simulation.py).
"""

import math
from collections import Counter
from collections.abc import Sequence

from gpu_casebook.engines.base import Engine
from gpu_casebook.evidence import Outcome, Trial
from gpu_casebook.judging.decision import Terms
from gpu_casebook.kinds import Variant
from gpu_casebook.run.plan import Plan
from gpu_casebook.statistics import clean_trials_needed, differ, wilson

FORKED_ABOVE = 20
"""So many trials of both variants together are run fresh; where more are expected, all but the first are forked."""
FRESH_SHARE, LEAST_FRESH = 0.1, 5
"""Of the trials of a variant that are expected, those that are fresh."""


def fresh_first(plan: Plan, engine: Engine) -> float:
    """Return how many trials of each variant are fresh before the others are forked; infinity if all are."""
    expected = expected_trials(plan.terms)
    if 2 * expected <= FORKED_ABOVE or plan.options.keep or not engine.can_fork:
        return math.inf
    return fresh_share(expected)


def fresh_share(expected: int) -> int:
    """Return how many of the trials of a variant that are expected are fresh."""
    return max(LEAST_FRESH, math.ceil(FRESH_SHARE * expected))


def expected_trials(asked: Terms) -> int:
    """Return how many trials of each variant it takes where the failure comes at the least declared rate."""
    lows = ((n, wilson(asked.least_rate * n, n).low) for n in range(1, asked.trials))
    return next((n for n, low in lows if clean_trials_needed(low, asked.alpha) <= n), asked.trials)


def disagreement(trials: Sequence[Trial]) -> str | None:
    """Return in which variant forked trials went otherwise than fresh ones, and how, if they did."""
    for variant in Variant:
        counted = [trial for trial in trials if trial.variant is variant and trial.outcome is not Outcome.INFRA]
        good = Counter(trial.forked for trial in counted if trial.outcome is Outcome.AS_EXPECTED)
        every = Counter(trial.forked for trial in counted)
        fresh, forked = ((good[how], every[how]) for how in (False, True))
        if differ(*fresh, *forked):
            rates = "{} of {} fresh trials were as expected, and {} of {} forked ones".format(*fresh, *forked)
            return f"of {variant}, {rates}"
    return None
