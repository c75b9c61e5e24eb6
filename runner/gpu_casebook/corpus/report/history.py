"""What each job came to over the runs kept, as plots want it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpu_casebook.corpus.model import End, Finished, Run
from gpu_casebook.corpus.report.changes import judged
from gpu_casebook.evidence import Variant

MOST_ROWS = 200
"""The most rows that still make a picture."""


@dataclass(frozen=True)
class Point:
    """One job in one run. None where there is nothing to show."""

    run: int  # its number among the runs kept, from 0
    confirmed: bool | None = None
    duration_s: float | None = None
    repro: float | None = None
    fixed: float | None = None


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]

    @property
    def longest_s(self) -> float:
        return max((point.duration_s or 0.0 for point in self.points), default=0.0)


@dataclass(frozen=True)
class History:
    """What the plots show."""

    started: Sequence[datetime]  # of each run, oldest first
    series: Sequence[Series]
    left_out: int = 0  # jobs that there is no room for


def history(runs: Sequence[Run]) -> History:
    """Of the jobs of the last run that came to anything in any; where they are too many, those that take longest."""
    names = [job.name for job in runs[-1].jobs] if runs else []
    points: dict[str, list[Point]] = {name: [] for name in names}
    for number, run in enumerate(runs):
        for done in run.finished:
            if done.job.name in points and (point := _point(number, done)):
                points[done.job.name].append(point)
    series = [Series(name, found) for name, found in points.items() if found]
    kept = sorted(series, key=lambda each: (-each.longest_s, each.name))[:MOST_ROWS]
    return History(
        started=[run.started for run in runs],
        series=sorted(kept, key=lambda each: each.name),
        left_out=len(series) - len(kept),
    )


def _point(number: int, done: Finished) -> Point | None:
    if not judged(done):
        return None
    shares = {variant: rate.k / rate.n for variant, rate in done.rates.items() if rate.n}
    duration_s = done.duration_s if done.end is End.RAN else None
    return Point(number, done.confirmed, duration_s, shares.get(Variant.REPRO), shares.get(Variant.FIXED))
