"""Which version to try next, and how sure the answer is. Pure.

A line of versions goes from the good end to the bad end, whichever is the newer: somewhere on it good ones end.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpu_casebook.records.bisection import Call


class Edge(NamedTuple):
    """The last version known good, the first known bad, and those between them, each of them skipped or open."""

    good: str
    bad: str
    between: tuple[str, ...]


def edge(line: Sequence[str], calls: Mapping[str, Call]) -> Edge:
    """Where the change is, as far as it is known. The ends count as what they were said to be."""
    bad = next((at for at, version in enumerate(line) if calls.get(version) is Call.BAD), len(line) - 1)
    good = next((at for at in range(bad - 1, 0, -1) if calls.get(line[at]) is Call.GOOD), 0)
    return Edge(line[good], line[bad], tuple(line[good + 1 : bad]))


def next_version(line: Sequence[str], calls: Mapping[str, Call]) -> str | None:
    """The middle of those that are open: each call halves them, each skip takes one away. None where none is left."""
    left = [version for version in edge(line, calls).between if version not in calls]
    return left[len(left) // 2] if left else None


def most_calls(between: int) -> int:
    """How many versions are called at most, besides the skipped ones, to search so many between the ends."""
    return between.bit_length()


def first(line: Sequence[str], calls: Mapping[str, Call], *, fixed: bool) -> list[str]:
    """The releases, the oldest first, one of which is the first that behaves as all newer ones do."""
    found = edge(line, calls)
    return [*reversed(found.between), found.good] if fixed else [*found.between, found.bad]


def doubt(line: Sequence[str], calls: Mapping[str, Call], quiet: Mapping[str, int], rate: float) -> float:
    """The chance that the change is not where `edge` says, because a version called good only kept quiet.

    Before anything was tried, the change was as likely before each version of the line, the good end included. A bad
    version stays quiet in `quiet` trials with probability (1 - rate)^quiet; one that shows the failure is bad.
    """
    found = edge(line, calls)
    good, bad = line.index(found.good), line.index(found.bad)
    weights = []
    weight = 1.0
    for at in range(good, -1, -1):  # the change before line[at] would make every good call from there on a wrong one
        weight *= (1.0 - rate) ** quiet.get(line[at], 0) if calls.get(line[at]) is Call.GOOD else 1.0
        weights.append(weight)
    return sum(weights) / (sum(weights) + bad - good)
