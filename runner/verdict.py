"""Trials -> rates, intervals, verdict. Pure.

Trials that the machine spoiled are counted apart and never decide anything.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from runner.evidence import Interval, Observation, Outcome, Rate, Trial, Variant, Verdict
from runner.expectation import ending, failed

FIGURES_TOLD = 4
_Z95 = 1.959963984540054


class Decision(NamedTuple):
    """The first of `reasons` is the headline."""

    verdict: Verdict
    reasons: tuple[str, ...]
    rates: dict[Variant, Rate]


def wilson(k: int, n: int) -> Interval:
    """95 % score interval of a proportion after k of n (Wilson 1927); everything where n is 0."""
    if n == 0:
        return Interval(0.0, 1.0)
    p, zz = k / n, _Z95**2
    middle = p + zz / (2 * n)
    half = _Z95 * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    low, high = (middle - half) / (1 + zz / n), (middle + half) / (1 + zz / n)
    return Interval(0.0 if k == 0 else low, 1.0 if k == n else high)


def clean_trials_needed(p: float, alpha: float) -> int:
    """How many trials without the failure make it unlikely, at level `alpha`, that it still comes at rate `p`.

    The least n with (1 - p)^n <= alpha. Raises ValueError unless 0 < p <= 1 and 0 < alpha < 1.
    """
    if not (0 < p <= 1 and 0 < alpha < 1):
        raise ValueError(f"needs 0 < p <= 1 and 0 < alpha < 1, not p={p}, alpha={alpha}")
    if p == 1:
        return 1
    n = math.log(alpha) / math.log1p(-p)
    whole = round(n)
    return whole if math.isclose(n, whole, rel_tol=1e-12) else math.ceil(n)


def rates(trials: Iterable[Trial]) -> dict[Variant, Rate]:
    """How many of each variant's trials were as expected."""
    trials = list(trials)
    return {variant: _rate([trial for trial in trials if trial.variant is variant]) for variant in Variant}


def _rate(trials: Sequence[Trial]) -> Rate:
    count = Counter(trial.outcome for trial in trials)
    k, n = count[Outcome.AS_EXPECTED], count[Outcome.AS_EXPECTED] + count[Outcome.OTHERWISE]
    low, high = wilson(k, n)
    return Rate(k=k, n=n, infra=count[Outcome.INFRA], low=low, high=high)


def decide(trials: Sequence[Trial], needed: int) -> Decision:
    """The verdict of a case that must fail, and whose fix must hold, in every one of `needed` trials or more."""
    found = rates(trials)
    counted = [trial for trial in trials if trial.outcome is not Outcome.INFRA]
    verdict, headline = _verdict(counted, found, max(needed, 1))
    return Decision(verdict, (headline, *_details(trials)), found)


def skipped(reasons: Sequence[str]) -> Decision:
    """For hardware that is not there: one reason for each environment that was looked at."""
    headline = "Not run: no environment of this case can run here."
    return Decision(Verdict.SKIPPED, (headline, *reasons), rates([]))


def _verdict(counted: Sequence[Trial], found: dict[Variant, Rate], needed: int) -> tuple[Verdict, str]:
    repro, fixed = found[Variant.REPRO], found[Variant.FIXED]
    for variant, rate in found.items():
        if rate.n < needed:
            return Verdict.INCONCLUSIVE, _too_few(variant, rate, needed)
    if repro.k == 0:
        return _not_the_failure([trial for trial in counted if trial.variant is Variant.REPRO])
    if repro.k < repro.n:
        share = f"in {repro.k} of {repro.n} runs only"
        return Verdict.INCONCLUSIVE, f"Reproduces {share}; this case declares no rate, so it must in every run."
    reproduces = f"Reproduces in {repro.k} of {repro.n} runs: {_endings(counted, Variant.REPRO)}"
    if fixed.k < fixed.n:
        return Verdict.FIX_FAILS, f"{reproduces}; the fix holds in {fixed.k} of {fixed.n} only."
    return Verdict.CONFIRMED, f"{reproduces}; the fix holds in {fixed.k} of {fixed.n}."


def _too_few(variant: Variant, rate: Rate, needed: int) -> str:
    blame = f"; the machine spoiled {rate.infra}" if rate.infra else ""
    return f"Too few runs count: {rate.n} of {variant}, where {needed} are needed{blame}."


def _not_the_failure(repro: Sequence[Trial]) -> tuple[Verdict, str]:
    wrong = [trial for trial in repro if failed(trial.observation)]
    if not wrong:
        return Verdict.NOT_REPRODUCED, f"Does not reproduce: repro ran to its end in {len(repro)} of {len(repro)} runs."
    how = _endings(wrong, Variant.REPRO)
    return Verdict.WRONG_FAILURE, f"Fails in another way than declared in {len(wrong)} of {len(repro)} runs: {how}."


def _endings(trials: Sequence[Trial], variant: Variant) -> str:
    """How the variant's trials ended, the most frequent first; told once where all ended alike."""
    own = [trial.observation for trial in trials if trial.variant is variant]
    if not any(map(failed, own)):
        return ", ".join(["ran to its end", *_figures(own)])
    (first, times), *others = Counter(map(ending, own)).most_common()
    return f"{first} ({times} of {len(own)}, the others in {len(others)} other ways)" if others else first


def _figures(seen: Sequence[Observation]) -> Iterator[str]:
    """The first figures, each as "name=value" or "name=low to high"."""
    for name in list(dict.fromkeys(name for each in seen for name in each.figures))[:FIGURES_TOLD]:
        yield f"{name}={_range([each.figures[name] for each in seen if name in each.figures])}"


def _range(values: Sequence[float]) -> str:
    numbers = sorted(value for value in values if not math.isnan(value))
    ends = dict.fromkeys(f"{value:.3g}" for value in (*numbers[:1], *numbers[-1:]))
    told = [" to ".join(ends)] if ends else []
    return " or ".join([*told, "nan"] if len(numbers) < len(values) else told)


def _details(trials: Sequence[Trial]) -> Iterator[str]:
    """Each thing that went otherwise, and each fault of the machine, with how often."""
    for variant in Variant:
        own = [trial for trial in trials if trial.variant is variant]
        count = Counter(line for trial in own if trial.outcome is Outcome.OTHERWISE for line in trial.mismatches)
        for line, times in count.items():
            yield f"{variant}: {line} ({times} of {sum(trial.outcome is not Outcome.INFRA for trial in own)})"
        spoiled = Counter(trial.infra or "unknown" for trial in own if trial.outcome is Outcome.INFRA)
        for reason, times in spoiled.items():
            yield f"{variant}: not counted, the machine was to blame: {reason} ({times} times)"
