"""What a script prints for the runner to read: figures, digests and series, a line each on stdout. Pure."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

POINTS_KEPT = 500
"""Of a longer series every second point is kept, or every third, and so on."""

_NAME = r"([a-z_][a-z0-9_.-]*)"
_NUMBER = r"([-+]?(?:nan|inf|infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?))"
_FIGURE = re.compile(rf"{_NAME}={_NUMBER}\r?", re.IGNORECASE)
_DIGEST = re.compile(rf"{_NAME}=([a-z][a-z0-9-]*:[0-9a-f]{{8,128}})\r?", re.IGNORECASE)
_POINT = re.compile(rf"{_NAME}\[([0-9]{{1,9}})\]={_NUMBER}\r?", re.IGNORECASE)
_CUT = re.compile(r"\[\.\.\. [0-9]+ bytes cut here \.\.\.\]")

K = TypeVar("K", bound=str | tuple[str, int])


class Printed(NamedTuple):
    """Figures `name=1e-7`, digests `name=sha256:ab12...` and series `name[step]=1e6`, by name.

    A name that came with different values, or of a series the same step, is in `contradicted` and nowhere else.
    A series has its points (step, value) in the order of the steps, thinned out to `POINTS_KEPT`.
    """

    figures: dict[str, float]
    digests: dict[str, str]
    series: dict[str, list[tuple[int, float]]]
    contradicted: list[str]


def read(stdout: str) -> Printed:
    """Take in every line that is exactly a figure, a digest or a point of a series."""
    figures: dict[str, float] = {}
    digests: dict[str, str] = {}
    points: dict[tuple[str, int], float] = {}
    contradicted: dict[str, None] = {}
    for line in _whole_lines(stdout):
        if match := _FIGURE.fullmatch(line):
            name, agrees = match[1], _agrees(figures, match[1], float(match[2]))
        elif match := _DIGEST.fullmatch(line):
            name, agrees = match[1], digests.setdefault(match[1], match[2]) == match[2]
        elif match := _POINT.fullmatch(line):
            name, agrees = match[1], _agrees(points, (match[1], int(match[2])), float(match[3]))
        else:
            continue
        if not agrees or (name in figures and name in digests):
            contradicted[name] = None
    return Printed(
        _without(contradicted, figures), _without(contradicted, digests), _series(contradicted, points), [*contradicted]
    )


def _whole_lines(stdout: str) -> Iterator[str]:
    """Without those at either side of a cut: the half of a number is a number too."""
    lines = stdout.split("\n")
    beside_a_cut = {at + side for at, line in enumerate(lines) if _CUT.fullmatch(line) for side in (-1, 1)}
    return (line for at, line in enumerate(lines) if at not in beside_a_cut)


def _agrees(known: dict[K, float], key: K, value: float) -> bool:
    first = known.setdefault(key, value)
    return first == value or (math.isnan(first) and math.isnan(value))


V = TypeVar("V")


def _without(contradicted: Mapping[str, None], values: Mapping[str, V]) -> dict[str, V]:
    return {name: value for name, value in values.items() if name not in contradicted}


def _series(
    contradicted: Mapping[str, None], points: Mapping[tuple[str, int], float]
) -> dict[str, list[tuple[int, float]]]:
    series: dict[str, list[tuple[int, float]]] = {}
    for (name, step), value in sorted(points.items(), key=lambda point: point[0]):
        series.setdefault(name, []).append((step, value))
    thin = {name: points[:: -(-len(points) // POINTS_KEPT)] for name, points in series.items()}
    return _without(contradicted, thin)
