"""What a script prints for the runner to read: figures, digests and series, a line each on stdout. Pure."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

POINTS_KEPT = 500
"""Of a longer series every second point is kept, or every third, and so on."""

_NUMBER = r"[-+]?(?:nan|inf|infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)"
_LINE = re.compile(
    r"(?P<name>[a-z_][a-z0-9_.-]*)"
    rf"(?:=(?P<figure>{_NUMBER})|=(?P<digest>[a-z][a-z0-9-]*:[0-9a-f]{{8,128}})"
    rf"|\[(?P<step>[0-9]{{1,9}})\]=(?P<point>{_NUMBER}))\r?",
    re.IGNORECASE,
)
_CUT = re.compile(r"\[\.\.\. [0-9]+ bytes cut here \.\.\.\]")


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
    series: dict[str, dict[int, float]] = {}
    contradicted: dict[str, None] = {}
    for match in filter(None, map(_LINE.fullmatch, _whole_lines(stdout))):
        name, digest = match["name"], match["digest"]
        if digest:
            agrees = digests.setdefault(name, digest) == digest
        elif match["figure"]:
            agrees = _agrees(figures, name, float(match["figure"]))
        else:
            agrees = _agrees(series.setdefault(name, {}), int(match["step"]), float(match["point"]))
        if not agrees or (name in figures and name in digests):
            contradicted[name] = None
    for name in contradicted:
        figures.pop(name, None)
        digests.pop(name, None)
        series.pop(name, None)
    thinned = {name: sorted(points.items())[:: -(-len(points) // POINTS_KEPT)] for name, points in series.items()}
    return Printed(figures, digests, dict(sorted(thinned.items())), [*contradicted])


def is_cut(stdout: str) -> bool:
    """Return whether the middle of the stream is missing, and with it what may contradict the rest."""
    return any(map(_CUT.fullmatch, stdout.split("\n")))


def _whole_lines(stdout: str) -> Iterator[str]:
    """Without those at either side of a cut: the half of a number is a number too."""
    lines = stdout.split("\n")
    beside_a_cut = {at + side for at, line in enumerate(lines) if _CUT.fullmatch(line) for side in (-1, 1)}
    return (line for at, line in enumerate(lines) if at not in beside_a_cut)


def _agrees(known: dict[Any, float], key: str | int, value: float) -> bool:
    first = known.setdefault(key, value)
    return first == value or (math.isnan(first) and math.isnan(value))
