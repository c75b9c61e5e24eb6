"""How often, how sure, and how many trials that asks of the fix. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpu_casebook.evidence import Demand, Outcome, Rate, Trial, Variant
from gpu_casebook.manifest.bounds import Bound
from gpu_casebook.manifest.model import Expectation, Growth, Manifest
from gpu_casebook.statistics import clean_trials_needed, trials_to_refute, wilson


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a verdict asks of the trials of a case.

    `trials`: so many of each variant, all of them as expected. Not so where the failure does not come every time, that
    is with a `rate` or with outputs that differ between trials (`differs`): then `trials` is the most for repro, the
    rate is measured, and the number of clean trials of fixed follows from it, up to `clean_trials`.
    `to_the_last`: all `trials` are run whatever they bring, because a person asked for so many.
    `telling` has the bounds on figures, and `growth` what is declared of a series, that tell repro from fixed.
    """

    trials: int
    to_the_last: bool = False
    rate: Bound | None = None
    alpha: float = 0.01
    clean_trials: int = 200
    differs: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    telling: Mapping[str, Bound] = field(default_factory=dict)
    growth: Growth | None = None

    @property
    def measured(self) -> bool:
        return self.rate is not None or bool(self.differs)

    @property
    def least_rate(self) -> float:
        return self.rate.parts[0][1] if self.rate else 0.0


def terms(
    manifest: Manifest, repro: Expectation, fixed: Expectation, trials: int, *, to_the_last: bool = False
) -> Terms:
    """The terms of a case in an environment where these are the expectations."""
    return Terms(
        trials=trials,
        to_the_last=to_the_last,
        rate=repro.rate,
        alpha=manifest.alpha,
        clean_trials=manifest.clean_trials,
        differs=tuple(repro.differs),
        same=tuple(fixed.same),
        telling={name: bound for name, bound in repro.figures.items() if fixed.figures.get(name) != bound},
        growth=repro.growth,
    )


def rates(trials: Iterable[Trial], asked: Terms) -> dict[Variant, Rate]:
    """How many of each variant's trials did what is expected of it: see `Rate`."""
    trials = list(trials)
    return {variant: _rate([each for each in trials if each.variant is variant], variant, asked) for variant in Variant}


def _rate(trials: Sequence[Trial], variant: Variant, asked: Terms) -> Rate:
    count = Counter(trial.outcome for trial in trials)
    k = _hits([trial for trial in trials if trial.outcome is Outcome.AS_EXPECTED], variant, asked)
    n = count[Outcome.AS_EXPECTED] + count[Outcome.OTHERWISE]
    low, high = wilson(k, n)
    return Rate(k=k, n=n, infra=count[Outcome.INFRA], low=low, high=high)


def _hits(good: Sequence[Trial], variant: Variant, asked: Terms) -> int:
    if variant is Variant.REPRO and asked.differs:
        return min(len(good) - _commonest(good, [name]) for name in asked.differs)
    if variant is Variant.FIXED and asked.same:
        return _commonest(good, asked.same)
    return len(good)


def _commonest(trials: Sequence[Trial], names: Sequence[str]) -> int:
    count = Counter(tuple(trial.observation.digests.get(name) for name in names) for trial in trials)
    return max(count.values(), default=0)


def reproduced(k: int, n: int, asked: Terms) -> bool:
    """Whether k of n shows the failure: in every trial, or where a rate is declared, not significantly below it."""
    if not asked.measured:
        return k == n >= max(asked.trials, 1)
    return k >= 1 and wilson(k, n).high >= asked.least_rate


def repro_needed(asked: Terms) -> int:
    """After how many trials without the failure it may be said not to come: where a rate is declared, not at it."""
    return max(asked.trials, 1) if asked.rate is None else trials_to_refute(asked.least_rate)


def clean_demanded(repro: Rate, asked: Terms) -> int:
    """Trials of fixed, all clean, for a repro that did reproduce.

    Where a rate is measured they follow from the lower end of its 95 % interval: with k / n itself a fix that fixes
    nothing would be confirmed far more often than `alpha` (tests/simulation.py has the numbers). Where outputs differ
    it is the rate of those unlike the commonest one: the first of fixed has nothing to differ from, and fixed gets no
    fewer trials than repro.
    """
    if not asked.measured:
        return max(asked.trials, 2 if asked.same else 1)
    clean = clean_trials_needed(repro.low, asked.alpha)
    return max(clean + 1, repro.n) if asked.differs else clean


def demand(repro: Rate, asked: Terms) -> Demand | None:
    """What was asked, for the evidence; None for cases that must fail every time."""
    if not asked.measured:
        return None
    return Demand(
        rate=str(asked.rate) if asked.rate else None,
        differs=list(asked.differs),
        alpha=asked.alpha,
        most=asked.trials,
        clean=clean_demanded(repro, asked) if reproduced(repro.k, repro.n, asked) else None,
        allowed=asked.clean_trials,
    )
