"""What the trials of a variant showed, in a few words. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpu_casebook.evidence import Trial
from gpu_casebook.judging.expectation import ending, failed
from gpu_casebook.judging.rates import Terms

FIGURES_TOLD = 2


def shown(trials: Sequence[Trial], asked: Terms) -> str:
    """How trials that were as expected show the failure: by how they ended, or where they ran through, by numbers."""
    if any(failed(trial.observation) for trial in trials):
        return endings(trials)
    return ", ".join(["ran to its end", *_numbers(trials, asked)])


def endings(trials: Sequence[Trial]) -> str:
    """How the trials ended, the most frequent first; told once where all ended alike."""
    (first, times), *others = Counter(ending(trial.observation) for trial in trials).most_common()
    return f"{first} ({times} of {len(trials)}, the others in {len(others)} other ways)" if others else first


def _numbers(trials: Sequence[Trial], asked: Terms) -> Iterator[str]:
    """What differs, what grows, then the figures: those that tell repro from fixed where there are such."""
    for name in asked.differs:
        yield f"{name} has {len(digests(trials, name))} values"
    grown = [trial.growth for trial in trials if trial.growth is not None]
    if asked.growth and grown:
        yield f"{asked.growth.series} grows by {spread(grown)} per step ({asked.growth.per_step})"
    named = list(asked.telling) or list(dict.fromkeys(name for trial in trials for name in trial.observation.figures))
    for name in named[:FIGURES_TOLD]:
        values = [trial.observation.figures[name] for trial in trials if name in trial.observation.figures]
        yield f"{name}={spread(values)}" + (f" ({asked.telling[name]})" if name in asked.telling else "")
    if more := len(named[FIGURES_TOLD:]):
        yield f"{more} more figure{'s' * (more > 1)}"


def digests(trials: Iterable[Trial], name: str) -> Counter[str]:
    """The values of a digest, with how often each came."""
    return Counter(trial.observation.digests[name] for trial in trials if name in trial.observation.digests)


def spread(values: Sequence[float]) -> str:
    """0.2506, or 0.2501 to 0.2512, or 1 or nan."""
    numbers = sorted(value for value in values if not math.isnan(value))
    ends = dict.fromkeys(map(number, (*numbers[:1], *numbers[-1:])))
    told = [" to ".join(ends)] if ends else []
    return " or ".join([*told, "nan"] if len(numbers) < len(values) else told)


def number(value: float) -> str:
    """Four digits; whole numbers whole."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e9 else f"{value:.4g}"
