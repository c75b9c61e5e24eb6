"""Given the trials so far and the terms of their case: is one more trial needed, and what is the verdict? Pure.

Trials that the machine spoiled are counted apart and never decide anything.

The variants take turns, so that what a trial leaves behind on the machine meets both of them. Fixed waits for the first
failure of repro. The trials of a variant end as soon as no outcome of the rest could change the verdict: when a repro
that must fail every time has passed once and failed once, and when one trial of fixed went wrong. If repro alone has
decided, fixed gets no trial. It must also be settled which verdict it is: a repro that passed may still fail in another
way, so it goes on. If a person asked for a number of trials, that many are run; fewer than the case asks for confirm
nothing.

If a rate is measured, repro goes on until two things hold: the trials that are left can't bring it below the declared
rate, and fixed would need no more trials than repro has had. Without the second, two or three lucky trials could give
the rate. It costs little, because a longer repro saves as many trials of fixed. What fixed must show follows from the
trials of repro as they were run. If repro had been run to its limit, it would have given a narrower interval or another
rate, and so another number. As the variants take turns, fixed may have had a few trials more by then. All of them must
be clean, which only makes the verdict stricter.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from failure_signature.bounds import Bound
from failure_signature.expectation import Expectation, Growth
from failure_signature.judging.description import FIGURES_SHOWN, digests, endings, spread
from failure_signature.kinds import Variant
from failure_signature.statistics import clean_trials_needed, trials_to_refute, wilson
from failure_signature.text import plural
from failure_signature.trials import Demand, Observation, Outcome, Rate, Trial, Verdict

CLEAN = 4
"""The least trials of fixed where no rate is measured. With 3 and 3, a fix that fixes nothing of a failure that comes
in every other run would be confirmed once in 64 times; with 3 and 4 it is 0.84 % at worst."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a verdict asks of the trials of a case."""

    trials: int  # of each variant; for repro an upper bound where the rate is measured
    least: int = 0  # what the case asks for; fewer confirm nothing
    clean: int = 0  # the least trials of fixed where no rate is measured
    to_the_last: bool = False  # run all `trials` whatever they bring, because a person asked for that many
    rate: Bound | None = None
    alpha: float = 0.01
    clean_trials: int = 200  # the most trials of fixed that may follow from a measured rate
    differs: tuple[str, ...] = ()  # digests that differ between trials of repro
    same: tuple[str, ...] = ()  # digests that are the same in all trials of fixed
    telling: Mapping[str, Bound] = field(default_factory=dict)  # bounds on figures that tell repro from fixed
    growth: Growth | None = None

    @property
    def measured(self) -> bool:
        """Whether some trials may lack the failure. Then its rate is measured, and says what fixed must show."""
        return self.rate is not None or bool(self.differs)

    @property
    def fixed_number(self) -> bool:
        """Whether each variant gets exactly `trials` trials."""
        return self.to_the_last and not self.measured

    @property
    def least_rate(self) -> float:
        return self.rate.parts[0][1] if self.rate else 0.0

    @property
    def repro_needed(self) -> int:
        """How many trials without the failure show that it does not come, or does not come at the declared rate."""
        return max(self.trials, 1) if self.rate is None else trials_to_refute(self.least_rate)

    def reproduced(self, k: int, n: int) -> bool:
        """Whether k failures in n trials are enough: every trial, or not significantly below the declared rate."""
        if not self.measured:
            return k == n >= max(self.trials, 1)
        return k >= 1 and wilson(k, n).high >= self.least_rate

    def clean_demanded(self, repro: Rate) -> int:
        """Return how many trials of fixed are needed, all of them clean, if repro did reproduce."""
        if not self.measured:
            return max(self.trials, self.clean, 2 if self.same else 1)
        # The lower end of the 95 % interval, not k / n. With k / n, a fix that fixes nothing would be confirmed far
        # more often than `alpha` (tests/simulation.py has the numbers).
        clean = clean_trials_needed(repro.low, self.alpha)
        # For outputs, a hit is one unlike the commonest output. The first output of fixed has nothing to differ from.
        return max(clean + 1, repro.n) if self.differs else clean


def terms(repro: Expectation, fixed: Expectation, *, trials: int, least: int, **limits: Any) -> Terms:
    """Return the terms of a case where these are the expectations. `limits` are further fields of `Terms`."""
    return Terms(
        trials=trials,
        least=least,
        clean=CLEAN if trials >= least else 0,
        rate=repro.rate,
        **limits,
        differs=tuple(repro.differs),
        same=tuple(fixed.same),
        telling=repro.figures_unlike(fixed),
        growth=repro.growth,
    )


class Decision(NamedTuple):
    verdict: Verdict
    reasons: tuple[str, ...]  # the first is the headline
    rates: dict[Variant, Rate]
    demand: Demand | None = None  # where the rate was measured


class Ruling(NamedTuple):
    verdict: Verdict
    headline: str


def _expected(variant: Variant, number: int) -> Trial:
    return Trial(
        variant=variant,
        number=number,
        outcome=Outcome.AS_EXPECTED,
        observation=Observation(),
        duration_s=0.0,
        stdout="",
        stderr="",
    )


def decide(trials: Sequence[Trial], asked: Terms) -> Decision:
    """Return the verdict on these trials, as if there were no more to come."""
    tally = Tally(trials, asked)
    ruling = tally.by_repro or tally.by_fixed
    reasons = (ruling.headline, *_demand_in_words(tally.demand, tally.repro), *_details(trials))
    return Decision(ruling.verdict, reasons, tally.rates, tally.demand)


@dataclass(frozen=True)
class Tally:
    """Trials of a case, counted."""

    trials: Sequence[Trial]
    asked: Terms

    @cached_property
    def rates(self) -> dict[Variant, Rate]:
        """How many trials of each variant did what is expected of it: see `Rate`."""
        return {variant: self._rate(variant) for variant in Variant}

    @property
    def repro(self) -> Rate:
        return self.rates[Variant.REPRO]

    @property
    def fixed(self) -> Rate:
        return self.rates[Variant.FIXED]

    @property
    def fix_fails(self) -> bool:
        """Whether any trial of fixed went otherwise, or gave another digest than one before it."""
        return self.fixed.k < self.fixed.n

    def used(self, variant: Variant) -> int:
        """How many trials were begun. Repetitions of a trial that the machine spoiled have the same number as it."""
        return len({trial.number for trial in self.trials if trial.variant is variant})

    @property
    def next(self) -> Variant | None:
        """Whose trial is next: the variants take turns. None where the verdict is settled."""
        turns = list(Variant)
        if self.used(Variant.FIXED) < self.used(Variant.REPRO):
            turns.reverse()
        return next(filter(self.wants, turns), None)

    def due(self, most: int) -> list[tuple[Variant, int]]:
        """Return the next trials, up to `most`, as variant and number, assuming that each does what is expected."""
        tally, due = self, list[tuple[Variant, int]]()
        while len(due) < most and (variant := tally.next):
            due.append((variant, tally.used(variant) + 1))
            tally = Tally([*tally.trials, _expected(*due[-1])], self.asked)
        return due

    def most(self, variant: Variant) -> int:
        """How many trials this variant can have at most, given these."""
        if variant is Variant.REPRO:
            return self.asked.trials
        if self.asked.fixed_number:
            return self.asked.clean_demanded(self.repro)
        if self._repro_is_open:
            return min(self.used(Variant.REPRO), self._demanded_so_far)
        return 0 if self.by_repro else self.asked.clean_demanded(self.repro)

    @property
    def _demanded_so_far(self) -> int:
        """How many clean trials of fixed would be needed if repro ended here; 0 if that can't be said yet."""
        demanded = self.asked.clean_demanded(self.repro) if self.repro.k else 0
        return 0 if self.asked.measured and demanded > self.asked.clean_trials else demanded

    def wants(self, variant: Variant) -> bool:
        """Whether this variant needs one more trial after these."""
        if self.used(variant) >= self.most(variant):
            return False
        if self.asked.fixed_number:
            return True
        return self._repro_is_open if variant is Variant.REPRO else not self.fix_fails

    @cached_property
    def _repro_is_open(self) -> bool:
        """Whether the trials that are left could change what repro says."""
        asked, seen, used = self.asked, self.repro, self.used(Variant.REPRO)
        left = asked.trials - used
        if left <= 0:
            return False
        if not asked.measured:
            return seen.n == used and seen.k in {0, seen.n}
        if seen.k == 0:
            return True
        if asked.reproduced(seen.k, seen.n + left):
            return not self.fix_fails and asked.clean_demanded(seen) > seen.n
        return asked.reproduced(seen.k + left, seen.n + left)

    @cached_property
    def by_repro(self) -> Ruling | None:
        """The verdict, if repro alone decides it, whatever fixed does; None where repro shows the failure."""
        asked, seen = self.asked, self.repro
        share = f"Reproduces in {seen.k} of {seen.n} runs"
        if asked.reproduced(seen.k, seen.n):
            needed = asked.clean_demanded(seen)
            if not asked.measured or needed <= asked.clean_trials:
                return None
            limit = f"that the fix would need {needed} clean runs; the case allows {asked.clean_trials}"
            return Ruling(Verdict.INCONCLUSIVE, f"{share} ({_interval(seen)}), so seldom {limit}.")
        if seen.n < asked.repro_needed and (seen.k == 0 or not asked.measured):
            return Ruling(Verdict.INCONCLUSIVE, _too_few(Variant.REPRO, seen, asked.repro_needed))
        if seen.k == 0:
            return _not_the_failure(self._counted(Variant.REPRO), asked)
        if asked.rate is None:
            why = f"{share} only; this case declares no rate, so it must in every run."
        else:
            why = f"{share} only ({_interval(seen)}): rarer than the declared rate {asked.rate}."
        return Ruling(Verdict.INCONCLUSIVE, why)

    @property
    def by_fixed(self) -> Ruling:
        """The verdict where repro shows the failure."""
        good = [trial for trial in self._counted(Variant.REPRO) if trial.outcome is Outcome.AS_EXPECTED]
        reproduces = f"Reproduces in {_share(self.repro, self.asked)}: {_shown(good, self.asked)}"
        needed = self.asked.clean_demanded(self.repro)
        if self.fix_fails:
            how = _how_the_fix_fails(self._counted(Variant.FIXED), self.fixed, self.asked)
            return Ruling(Verdict.FIX_FAILS, f"{reproduces}; {how}.")
        if self.fixed.n < needed:
            return Ruling(Verdict.INCONCLUSIVE, _too_few(Variant.FIXED, self.fixed, needed))
        holds = f"{reproduces}; the fix holds in {self.fixed.k} of {self.fixed.n}"
        doubt = self._too_short or self._own_fault
        return (
            Ruling(Verdict.INCONCLUSIVE, f"{holds}, but {doubt}.") if doubt else Ruling(Verdict.CONFIRMED, f"{holds}.")
        )

    @property
    def _too_short(self) -> str | None:
        """Why the trials that a person asked for are too few for the case."""
        asked = self.asked
        if asked.trials >= asked.least:
            return None
        whole = Tally(self.trials, replace(asked, trials=asked.least, clean=CLEAN, to_the_last=False))
        if not any(map(whole.wants, Variant)):
            return None
        needed = f"up to {asked.least} of repro" if asked.measured else f"{asked.least} of repro and {CLEAN} of fixed"
        return f"that is too few to confirm it: the case asks for {needed}"

    @property
    def _own_fault(self) -> str | None:
        """Why failures that the machine was blamed for may be the case's own.

        A fault of the machine can hit any trial. If several trials of one variant have it, that variant may be why.
        """
        repro, fixed = (self._blamed(variant) for variant in Variant)
        suspect = next((own for own in (fixed, repro) if len(own) > 1), fixed if len(fixed) > len(repro) else [])
        if not suspect:
            return None
        runs = f"{plural(len(suspect), 'more run')} of {suspect[0].variant}"
        return f"{runs} failed with what may be its own fault or the machine's ({suspect[0].infra})"

    def _blamed(self, variant: Variant) -> list[Trial]:
        """Return the trials that ran, failed, and printed something for which the machine is blamed."""
        return [trial for trial in self.trials if trial.variant is variant and trial.infra and trial.mismatches]

    @property
    def demand(self) -> Demand | None:
        """What was asked, for the evidence; None for cases that must fail every time."""
        asked, repro = self.asked, self.repro
        if not asked.measured:
            return None
        return Demand(
            rate=str(asked.rate) if asked.rate else None,
            differs=list(asked.differs),
            alpha=asked.alpha,
            most=asked.trials,
            clean=asked.clean_demanded(repro) if asked.reproduced(repro.k, repro.n) else None,
        )

    def _counted(self, variant: Variant) -> list[Trial]:
        return [trial for trial in self.trials if trial.variant is variant and trial.outcome is not Outcome.INFRA]

    def _rate(self, variant: Variant) -> Rate:
        counted = self._counted(variant)
        k = _hits([trial for trial in counted if trial.outcome is Outcome.AS_EXPECTED], variant, self.asked)
        low, high = wilson(k, len(counted))
        spoiled = sum(trial.variant is variant for trial in self.trials) - len(counted)
        return Rate(k=k, n=len(counted), infra=spoiled, low=low, high=high)


def _hits(good: Sequence[Trial], variant: Variant, asked: Terms) -> int:
    if variant is Variant.REPRO and asked.differs:
        return min(len(good) - _commonest(good, [name]) for name in asked.differs)
    if variant is Variant.FIXED and asked.same:
        return _commonest(good, asked.same)
    return len(good)


def _commonest(trials: Sequence[Trial], names: Sequence[str]) -> int:
    count = Counter(tuple(trial.observation.digests.get(name) for name in names) for trial in trials)
    return max(count.values(), default=0)


# The sentences


def _shown(trials: Sequence[Trial], asked: Terms) -> str:
    """How trials that were as expected show the failure: by their end, or by numbers if they ran to their end."""
    if any(trial.observation.failed for trial in trials):
        return endings(trials)
    return ", ".join(["ran to its end", *_numbers(trials, asked)])


def _numbers(trials: Sequence[Trial], asked: Terms) -> Iterator[str]:
    """What differs, what grows, then the figures: if some of them tell repro from fixed, only those."""
    for name in asked.differs:
        yield f"{name} has {len(digests(trials, name))} values"
    grown = [trial.growth for trial in trials if trial.growth is not None]
    if asked.growth and grown:
        yield f"{asked.growth.series} grows by {spread(grown)} per step ({asked.growth.per_step})"
    named = list(asked.telling) or list(dict.fromkeys(name for trial in trials for name in trial.observation.figures))
    for name in named[:FIGURES_SHOWN]:
        values = [trial.observation.figures[name] for trial in trials if name in trial.observation.figures]
        yield f"{name}={spread(values)}" + (f" ({asked.telling[name]})" if name in asked.telling else "")
    if more := len(named[FIGURES_SHOWN:]):
        yield plural(more, "more figure")


def _share(repro: Rate, asked: Terms) -> str:
    if asked.differs:  # a single run can't differ, so there is no share of the runs
        return f"{repro.n} runs"
    interval = f" ({_interval(repro)})" if asked.rate else ""
    return f"{repro.k} of {repro.n} runs{interval}"


def _how_the_fix_fails(counted: Sequence[Trial], fixed: Rate, asked: Terms) -> str:
    values = {name: len(digests(counted, name)) for name in asked.same}
    differing = [f"{name} still has {count} values in {fixed.n} runs" for name, count in values.items() if count > 1]
    return ", ".join(differing) or f"the fix holds in {fixed.k} of {fixed.n} only"


def _too_few(variant: Variant, rate: Rate, needed: int) -> str:
    blame = f"; the machine spoiled {rate.infra}" if rate.infra else ""
    return f"Too few runs count: {rate.n} of {variant}, where {needed} are needed{blame}."


def _interval(rate: Rate) -> str:
    return f"95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f} %"


def _not_the_failure(repro: Sequence[Trial], asked: Terms) -> Ruling:
    others = [trial for trial in repro if trial.outcome is Outcome.OTHERWISE]
    wrong = [trial for trial in others if trial.observation.failed]
    if wrong:
        count = f"{len(wrong)} of {len(repro)} runs"
        return Ruling(Verdict.WRONG_FAILURE, f"Fails in another way than declared in {count}: {endings(wrong)}.")
    if others:
        how = f"repro ran to its end in {len(others)} of {len(repro)} runs"
    else:
        alike = ", ".join(name for name in asked.differs if len(digests(repro, name)) < 2)
        how = f"{alike} was the same in {len(repro)} of {len(repro)} runs"
    return Ruling(Verdict.NOT_REPRODUCED, f"Does not reproduce: {how}.")


def _demand_in_words(demand: Demand | None, repro: Rate) -> Iterator[str]:
    """What was asked of either variant, and why that many trials of fixed."""
    if demand is None:
        return
    what = f"a rate {demand.rate}" if demand.rate else f"different values of {', '.join(demand.differs)}"
    yield f"asked of repro: {what} in at most {demand.most} runs"
    if demand.clean:
        kind, free = ("equal", 1) if demand.differs else ("clean", 0)  # the first output has nothing to differ from
        chance = (1 - repro.low) ** (demand.clean - free)
        yield (
            f"asked of fixed: {demand.clean} {kind} runs; at a rate of {repro.low:.4f}, the lower end of repro's 95 % "
            f"interval, so many come about by chance with probability {chance:.2g} (alpha {demand.alpha:g})"
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
