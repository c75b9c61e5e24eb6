"""How much a series grows per step. Pure."""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import median

from gpu_casebook.evidence import Observation
from gpu_casebook.manifest.model import Growth

_NEARLY_ALL = 0.9


def slope(points: Sequence[tuple[int, float]]) -> float:
    """The median of the slopes between any two points (Theil 1950, Sen 1968), in units of the values per step.

    NaN for fewer than two points, and where a value is not finite. Why not the median of the differences from step
    to step: allocators take memory in blocks, so a leak is a staircase whose steps are mostly level. Why not least
    squares: one step at which memory comes and goes would tilt the line.
    """
    if len(points) < 2 or not all(math.isfinite(value) for _, value in points):
        return math.nan
    return median((late - early) / (after - before) for (before, early), (after, late) in combinations(points, 2))


def without_jump(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Remove a single jump that accounts for >= 90 % of all movement; without one, the points as they are.

    A one-off allocation in the middle gives most pairs of points a slope, and is no leak. The blocks of a leak are
    several, so none of them is nearly all of it.
    """
    moves = [late - early for (_, early), (_, late) in pairwise(points)]
    largest = max(moves, key=abs, default=0.0)
    if abs(largest) < _NEARLY_ALL * sum(map(abs, moves)):
        return points
    at = moves.index(largest) + 1 if moves else 0
    return [*points[:at], *((step, value - largest) for step, value in points[at:])]


def after_warm_up(declared: Growth, points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Drop the points of the first `warm_up` steps."""
    return [point for point in points if point[0] >= points[0][0] + declared.warm_up]


def growth(declared: Growth, seen: Observation) -> float | None:
    """The growth per step after warm-up; None where the script printed too few steps of it."""
    points = after_warm_up(declared, seen.series.get(declared.series, []))
    return slope(points) if len(points) >= declared.steps else None


def growth_apart_from_one_jump(declared: Growth, seen: Observation) -> float | None:
    """Like `growth`, without a single step at which nearly all of it happened."""
    points = after_warm_up(declared, seen.series.get(declared.series, []))
    return slope(without_jump(points)) if len(points) >= declared.steps else None
