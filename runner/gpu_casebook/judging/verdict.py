"""Trials -> verdict, and why. Pure.

Trials that the machine spoiled are counted apart and never decide anything.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpu_casebook.evidence import Demand, Outcome, Rate, Trial, Variant, Verdict
from gpu_casebook.judging.expectation import failed
from gpu_casebook.judging.headline import digests, endings, shown
from gpu_casebook.judging.rates import Terms, clean_demanded, demand, rates, repro_needed, reproduced


class Decision(NamedTuple):
    """The first of `reasons` is the headline. `demand` is there where the rate was measured."""

    verdict: Verdict
    reasons: tuple[str, ...]
    rates: dict[Variant, Rate]
    demand: Demand | None = None


class Finding(NamedTuple):
    verdict: Verdict
    headline: str


def decide(trials: Sequence[Trial], asked: Terms) -> Decision:
    """The verdict on these trials, as if there were no more to come."""
    found = rates(trials, asked)
    finding = repro_decides(trials, asked) or _fixed_decides(trials, asked)
    wanted = demand(found[Variant.REPRO], asked)
    reasons = (finding.headline, *_asked(wanted, found[Variant.REPRO]), *_details(trials))
    return Decision(finding.verdict, reasons, found, wanted)


def skipped(reasons: Sequence[str]) -> Decision:
    """For hardware that is not there: one reason for each environment that was looked at."""
    headline = "Not run: no environment of this case can run here."
    return Decision(Verdict.SKIPPED, (headline, *reasons), rates([], Terms(trials=1)))


def repro_decides(trials: Sequence[Trial], asked: Terms) -> Finding | None:
    """The verdict if it is repro's alone, whatever fixed does; None where the failure is shown."""
    seen = rates(trials, asked)[Variant.REPRO]
    own = _counted(trials, Variant.REPRO)
    if reproduced(seen.k, seen.n, asked):
        return _beyond_the_limit(seen, asked) if asked.measured else None
    if seen.n < repro_needed(asked) and (seen.k == 0 or not asked.measured):
        return Finding(Verdict.INCONCLUSIVE, _too_few(Variant.REPRO, seen, repro_needed(asked)))
    if seen.k == 0:
        return _not_the_failure(own, asked)
    return Finding(Verdict.INCONCLUSIVE, _too_rare(seen, asked))


def fix_fails(trials: Sequence[Trial], asked: Terms) -> bool:
    """Whether any trial of fixed went otherwise, or gave another digest than one before it."""
    seen = rates(trials, asked)[Variant.FIXED]
    return seen.k < seen.n


def _fixed_decides(trials: Sequence[Trial], asked: Terms) -> Finding:
    found = rates(trials, asked)
    repro, fixed = found[Variant.REPRO], found[Variant.FIXED]
    needed = clean_demanded(repro, asked)
    good = [trial for trial in _counted(trials, Variant.REPRO) if trial.outcome is Outcome.AS_EXPECTED]
    reproduces = f"Reproduces in {_share(repro, asked)}: {shown(good, asked)}"
    if fix_fails(trials, asked):
        return Finding(Verdict.FIX_FAILS, f"{reproduces}; {_unfixed(trials, fixed, asked)}.")
    if fixed.n < needed:
        return Finding(Verdict.INCONCLUSIVE, _too_few(Variant.FIXED, fixed, needed))
    return Finding(Verdict.CONFIRMED, f"{reproduces}; the fix holds in {fixed.k} of {fixed.n}.")


def _counted(trials: Sequence[Trial], variant: Variant) -> list[Trial]:
    return [trial for trial in trials if trial.variant is variant and trial.outcome is not Outcome.INFRA]


def _share(repro: Rate, asked: Terms) -> str:
    """How often, in words; outputs that differ are no property of a single run."""
    if asked.differs:
        return f"{repro.n} runs"
    interval = f" (95 % interval {_percent(repro)})" if asked.rate else ""
    return f"{repro.k} of {repro.n} runs{interval}"


def _unfixed(trials: Sequence[Trial], fixed: Rate, asked: Terms) -> str:
    own = _counted(trials, Variant.FIXED)
    values = {name: len(digests(own, name)) for name in asked.same}
    told = [f"{name} still has {count} values in {fixed.n} runs" for name, count in values.items() if count > 1]
    return ", ".join(told) or f"the fix holds in {fixed.k} of {fixed.n} only"


def _too_few(variant: Variant, rate: Rate, needed: int) -> str:
    blame = f"; the machine spoiled {rate.infra}" if rate.infra else ""
    return f"Too few runs count: {rate.n} of {variant}, where {needed} are needed{blame}."


def _too_rare(repro: Rate, asked: Terms) -> str:
    share = f"Reproduces in {repro.k} of {repro.n} runs only"
    if asked.rate is None:
        return f"{share}; this case declares no rate, so it must in every run."
    return f"{share} (95 % interval {_percent(repro)}): rarer than the declared rate {asked.rate}."


def _beyond_the_limit(repro: Rate, asked: Terms) -> Finding | None:
    needed = clean_demanded(repro, asked)
    if needed <= asked.clean_trials:
        return None
    told = f"Reproduces in {repro.k} of {repro.n} runs (95 % interval {_percent(repro)}), so seldom"
    limit = f"that the fix would need {needed} clean runs; the case allows {asked.clean_trials}"
    return Finding(Verdict.INCONCLUSIVE, f"{told} {limit}.")


def _percent(rate: Rate) -> str:
    return f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def _not_the_failure(repro: Sequence[Trial], asked: Terms) -> Finding:
    others = [trial for trial in repro if trial.outcome is Outcome.OTHERWISE]
    wrong = [trial for trial in others if failed(trial.observation)]
    if wrong:
        told = f"Fails in another way than declared in {len(wrong)} of {len(repro)} runs: {endings(wrong)}."
        return Finding(Verdict.WRONG_FAILURE, told)
    if others:
        told = f"repro ran to its end in {len(others)} of {len(repro)} runs"
    else:
        told = f"{', '.join(_alike(repro, asked))} was the same in {len(repro)} of {len(repro)} runs"
    return Finding(Verdict.NOT_REPRODUCED, f"Does not reproduce: {told}.")


def _alike(trials: Sequence[Trial], asked: Terms) -> list[str]:
    return [name for name in asked.differs if len(digests(trials, name)) < 2]


def _asked(wanted: Demand | None, repro: Rate) -> Iterator[str]:
    """What was asked of either variant, and why so many trials of fixed."""
    if wanted is None:
        return
    what = f"a rate {wanted.rate}" if wanted.rate else f"different values of {', '.join(wanted.differs)}"
    yield f"asked of repro: {what} in at most {wanted.most} runs"
    if wanted.clean:
        kind, free = ("equal", 1) if wanted.differs else ("clean", 0)  # the first has nothing to differ from
        chance = (1 - repro.low) ** (wanted.clean - free)
        yield (
            f"asked of fixed: {wanted.clean} {kind} runs; at a rate of {repro.low:.4f}, the lower end of repro's 95 % "
            f"interval, so many come about by chance with probability {chance:.2g} (alpha {wanted.alpha:g})"
        )


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
