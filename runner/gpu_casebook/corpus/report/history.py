"""What each job came to over the runs kept, as plots want it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpu_casebook.corpus.model import End, Finished, Run
from gpu_casebook.corpus.report.changes import judged
from gpu_casebook.evidence import Variant

MOST_ROWS = 200
"""More cases than that are no picture any more."""


@dataclass(frozen=True)
class Point:
    """One job in one run: `run` counts the runs kept from 0. None where there is nothing to show."""

    run: int
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
    """`started` has one moment for each run, oldest first. `left_out` counts the jobs that there is no room for."""

    started: Sequence[datetime]
    series: Sequence[Series]
    left_out: int = 0


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
    repro, fixed = (_share(done, variant) for variant in Variant)
    ran = done.end is End.RAN
    return Point(number, done.confirmed, done.duration_s if ran else None, repro, fixed)


def _share(done: Finished, variant: Variant) -> float | None:
    rate = done.rates.get(variant)
    return rate.k / rate.n if rate and rate.n else None
