"""How often a verdict is wrong, for cases whose rates are known: `python -m tests.simulation` prints the table.

The runner's own schedule and verdict decide; only the trials are drawn. What they decide depends on counts, so that
besides drawing cases, the probability of each verdict can be summed up exactly.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from failure_signature.bounds import Bound
from failure_signature.judging import decision
from failure_signature.judging.decision import CLEAN, Tally, Terms
from failure_signature.kinds import Variant
from failure_signature.statistics import Interval, wilson
from failure_signature.trials import Rate
from tests.synthetic import trials

SEED = 20261121
DESIGNS = (
    Terms(trials=240, rate=Bound.parse(">= 0.05")),
    Terms(trials=120, rate=Bound.parse(">= 0.1")),
    Terms(trials=40, rate=Bound.parse(">= 0.3")),
    Terms(trials=17, rate=Bound.parse(">= 0.3")),
    Terms(trials=20, rate=Bound.parse(">= 0.5")),
    Terms(trials=7, rate=Bound.parse(">= 0.8")),
)
RATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9, 1.0)
OUTPUTS: Mapping[str, Sequence[float]] = {
    "another every time": [0.01] * 100,
    "ten alike": [0.1] * 10,
    "one of two": [0.5, 0.5],
    "one in four differs": [0.75, 0.25],
    "one in ten differs": [0.9, 0.1],
}


class Chances(NamedTuple):
    """Probability that the failure counts as reproduced and that the fix is confirmed; mean numbers of trials."""

    reproduced: float
    confirmed: float
    repro_trials: float
    fixed_trials: float


@dataclass(frozen=True)
class Counted(Tally):
    """A tally of a repro with k failures in n trials, and of no trials of fixed: what it says depends on no more."""

    k: int
    n: int

    @cached_property
    def rates(self) -> dict[Variant, Rate]:
        low, high = decision.wilson(self.k, self.n)  # type: ignore[attr-defined]  # as patched below
        repro = Rate(k=self.k, n=self.n, low=low, high=high)
        return {Variant.REPRO: repro, Variant.FIXED: Rate(k=0, n=0, low=0.0, high=1.0)}

    def used(self, variant: Variant) -> int:
        return self.n if variant is Variant.REPRO else 0


class Design:
    """What the schedule and the verdict make of k failures in n trials, worked out once for each k and n."""

    def __init__(self, asked: Terms) -> None:
        self.asked = asked
        self.goes_on = cache(self._goes_on)
        self.demanded = cache(self._demanded)

    def _goes_on(self, k: int, n: int) -> bool:
        return Counted((), self.asked, k, n).wants(Variant.REPRO)

    def _demanded(self, k: int, n: int) -> int:
        """Clean trials of fixed that confirm; 0 where repro alone has decided."""
        return Counted((), self.asked, k, n).most(Variant.FIXED)

    def chances(self, p: float, fixed: float) -> Chances:
        """Exact, for a failure at rate `p` that a fix brings down to rate `fixed`."""
        reproduced = confirmed = repro_trials = fixed_trials = 0.0
        for k, n, probability in self._ends(p):
            clean = self.demanded(k, n)
            repro_trials += probability * n
            reproduced += probability * (clean > 0)
            confirmed += probability * (1 - fixed) ** clean * (clean > 0)
            fixed_trials += probability * (clean if fixed == 0 else (1 - (1 - fixed) ** clean) / fixed)
        return Chances(reproduced, confirmed, repro_trials, fixed_trials)

    def _ends(self, p: float) -> Iterator[tuple[int, int, float]]:
        """Where repro ends: k, n, how probable that is."""
        states, n = {0: 1.0}, 0
        while states:
            going = {k: probability for k, probability in states.items() if self.goes_on(k, n)}
            yield from ((k, n, probability) for k, probability in states.items() if k not in going)
            states, n = {}, n + 1
            for k, probability in going.items():
                states[k + 1] = states.get(k + 1, 0.0) + probability * p
                states[k] = states.get(k, 0.0) + probability * (1 - p)

    def draw(self, p: float, fixed: float, chance: random.Random) -> bool:
        """Run one synthetic case; whether it is confirmed."""
        k = n = 0
        while self.goes_on(k, n):
            k, n = k + (chance.random() < p), n + 1
        clean = self.demanded(k, n)
        return clean > 0 and all(chance.random() >= fixed for _ in range(clean))


def worst(design: Design, steps: int = 200) -> tuple[float, float]:
    """The highest probability that a fix that fixes nothing is confirmed, and the rate of the failure there."""
    return max((design.chances(p, p).confirmed, p) for p in (each / steps for each in range(1, steps)))


def worst_of_two_outputs(asked: Terms, steps: int = 100) -> float:
    """The same, exact, where there are two different outputs, and both variants give them with the same shares."""

    @cache
    def tally(one: int, n: int) -> Counted:
        return Counted((), asked, min(one, n - one), n)

    def wrong(share: float) -> float:
        states, n, total = {0: 1.0}, 0, 0.0
        while states:
            following: dict[int, float] = {}
            for one, probability in states.items():
                if tally(one, n).wants(Variant.REPRO):
                    following[one + 1] = following.get(one + 1, 0.0) + probability * share
                    following[one] = following.get(one, 0.0) + probability * (1 - share)
                elif clean := tally(one, n).most(Variant.FIXED):
                    total += probability * (share**clean + (1 - share) ** clean)
            states, n = following, n + 1
        return total

    return max(wrong(each / steps) for each in range(1, steps // 2 + 1))


def with_plain_estimate(asked: Terms) -> Design:
    """The same, had the number of clean trials followed from k / n itself, not from its interval's lower end."""
    design = Design(asked)
    with patch(
        "failure_signature.judging.decision.wilson", lambda k, n: Interval(k / n if n else 0.0, wilson(k, n).high)
    ):
        worst(design)  # fills the tables
    return design


def wrongly_the_same(shares: Sequence[float], runs: int, chance: random.Random) -> tuple[float, float]:
    """For outputs with these shares, which a fix leaves as they are: how often it is confirmed, and the mean number of
    trials of both variants together.
    """
    asked = Terms(trials=100, differs=("out",), same=("out",))

    @cache
    def goes_on(counts: tuple[int, ...]) -> bool:
        return Tally(trials(_outputs(counts)), asked).wants(Variant.REPRO)

    @cache
    def demanded(counts: tuple[int, ...]) -> int:
        return Tally(trials(_outputs(counts)), asked).most(Variant.FIXED)

    wrong = total = 0.0
    for _ in range(runs):
        seen: Counter[int] = Counter()
        while goes_on(tuple(sorted(seen.values()))):
            seen.update(chance.choices(range(len(shares)), shares))
        clean = demanded(tuple(sorted(seen.values())))
        wrong += sum(share**clean for share in shares) if clean else 0.0
        total += clean + seen.total()
    return wrong / runs, total / runs


def _outputs(counts: Sequence[int]) -> str:
    return "".join(chr(ord("a") + which) * count for which, count in enumerate(counts))


def main() -> None:
    """Print the tables."""
    console = Console(width=140)
    table = Table("declared", "trials", "rate", "reproduces", "repro runs", "fixed runs", box=None)
    for title in ("fixed: confirmed", "not fixed: confirmed", "of 4000 drawn", "rate halved: confirmed"):
        table.add_column(title, justify="right")
    chance = random.Random(SEED)
    for asked in DESIGNS:
        design = Design(asked)
        for p in RATES:
            real, none, half = (design.chances(p, fixed) for fixed in (0.0, p, p / 2))
            drawn = sum(design.draw(p, p, chance) for _ in range(4000)) / 4000
            said = [str(asked.rate), str(asked.trials), f"{p:g}", _percent(real.reproduced)]
            runs = [f"{real.repro_trials:.1f}", f"{real.fixed_trials:.1f}"]
            numbers = [real.confirmed, none.confirmed, drawn, half.confirmed]
            table.add_row(*said, *runs, *map(_percent, numbers))
    console.print(table)
    console.print("\nA fix that fixes nothing is confirmed at most, over all rates of the failure:")
    for asked in DESIGNS:
        (high, at), (plain, plain_at) = worst(Design(asked)), worst(with_plain_estimate(asked))
        told = f"{_percent(high)} (at rate {at:g}); with k / n itself {_percent(plain)} (at {plain_at:g})"
        console.print(f"  {asked.rate}, {asked.trials} trials: {told}")
    for count, clean in ((3, 3), (3, CLEAN), (4, CLEAN)):
        high, at = worst(Design(Terms(trials=count, clean=clean)))
        console.print(f"  no rate declared, {count} trials and {clean} of fixed: {_percent(high)} (at rate {at:g})")
    console.print("\nOutputs that differ, and a fix that leaves them as they are:")
    for name, shares in OUTPUTS.items():
        wrong, total = wrongly_the_same(shares, 4000, chance)
        console.print(f"  {name}: confirmed {_percent(wrong)}, {total:.1f} runs of both")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


if __name__ == "__main__":
    main()
