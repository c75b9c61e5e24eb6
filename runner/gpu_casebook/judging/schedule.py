"""How many trials, and when there have been enough. Pure.

A variant's trials end as soon as no outcome of the rest could change the verdict: after a mixed repro that had to fail
every time, after the first trial of fixed that went wrong, and fixed is not run at all where repro has decided.
Which verdict it is must be settled too: a repro that passed may yet fail in another way, so it goes on. Where a person
asked for a number of trials, that many are run.

Where a rate is measured, repro goes on until the rest can't bring it below the declared rate *and* fixed would need no
more trials than repro has had. The second is what keeps the rate from being taken off two or three lucky trials: a
longer repro saves as many trials of fixed. What fixed must show follows from repro's trials as they were run; had repro
been run to its limit, the same rate would be measured more sharply, or another one, and the number be another.
"""

from collections.abc import Sequence

from gpu_casebook.evidence import Rate, Trial, Variant
from gpu_casebook.judging.rates import Terms, clean_demanded, rates, reproduced
from gpu_casebook.judging.verdict import fix_fails, repro_decides


def wants(variant: Variant, trials: Sequence[Trial], asked: Terms) -> bool:
    """Whether this variant needs one more trial after these; repro comes first."""
    used = slots_used(variant, trials)
    if asked.to_the_last and not asked.measured:
        return used < asked.trials
    if variant is Variant.REPRO:
        return used < asked.trials and _repro_open(rates(trials, asked)[variant], asked.trials - used, used, asked)
    return used < most(variant, trials, asked) and not fix_fails(trials, asked)


def most(variant: Variant, trials: Sequence[Trial], asked: Terms) -> int:
    """How many trials of this variant there can be at most, after these."""
    if variant is Variant.REPRO or (asked.to_the_last and not asked.measured):
        return asked.trials
    return 0 if repro_decides(trials, asked) else clean_demanded(rates(trials, asked)[Variant.REPRO], asked)


def slots_used(variant: Variant, trials: Sequence[Trial]) -> int:
    """How many trials were begun; the repetitions of one that the machine spoiled have its number."""
    return len({trial.number for trial in trials if trial.variant is variant})


def _repro_open(seen: Rate, rest: int, used: int, asked: Terms) -> bool:
    """Whether `rest` more trials could change what repro says."""
    if not asked.measured:
        return seen.n == used and seen.k in {0, seen.n}
    if seen.k == 0:
        return True
    if reproduced(seen.k, seen.n + rest, asked):
        return clean_demanded(seen, asked) > seen.n
    return reproduced(seen.k + rest, seen.n + rest, asked)
