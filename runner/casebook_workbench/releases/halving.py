"""Which version to try next, and how sure the answer is. Pure.

A line of versions goes from the good end to the bad end, whichever is the newer: somewhere on it good ones end.
"""

from collections.abc import Mapping, Sequence

from casebook_workbench.releases.records import Call


def edge(line: Sequence[str], calls: Mapping[str, Call]) -> tuple[int, int]:
    """Return where the last version known good is and where the first known bad; those between are skipped or open.

    The ends count as what they were said to be.
    """
    bad = next((at for at, version in enumerate(line) if calls.get(version) is Call.BAD), len(line) - 1)
    good = next((at for at in range(bad - 1, 0, -1) if calls.get(line[at]) is Call.GOOD), 0)
    return good, bad


def next_version(line: Sequence[str], calls: Mapping[str, Call]) -> str | None:
    """Return the middle of those that are open, or None where none is left.

    Each call halves them, each skip takes one away.
    """
    good, bad = edge(line, calls)
    left = [version for version in line[good + 1 : bad] if version not in calls]
    return left[len(left) // 2] if left else None


def most_calls(between: int) -> int:
    """Return how many versions are called at most, besides the skipped ones, to search so many between the ends."""
    return between.bit_length()


def first(line: Sequence[str], calls: Mapping[str, Call], *, fixed: bool) -> list[str]:
    """Return the releases, the oldest first, one of which is the first that behaves as all newer ones do."""
    good, bad = edge(line, calls)
    return [*reversed(line[good:bad])] if fixed else [*line[good + 1 : bad + 1]]


def doubt(line: Sequence[str], calls: Mapping[str, Call], quiet: Mapping[str, int], rate: float) -> float:
    """Return the chance that the change is not where `edge` says, because a version called good only kept quiet.

    Before anything was tried, the change was as likely before each version of the line, the good end included. A bad
    version stays quiet in `quiet` trials with probability (1 - rate)^quiet; one that shows the failure is bad.
    """
    good, bad = edge(line, calls)
    weights = []
    weight = 1.0
    for at in range(good, -1, -1):  # the change before line[at] would make every good call from there on a wrong one
        weight *= (1.0 - rate) ** quiet.get(line[at], 0) if calls.get(line[at]) is Call.GOOD else 1.0
        weights.append(weight)
    return sum(weights) / (sum(weights) + bad - good)
