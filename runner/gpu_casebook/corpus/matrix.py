"""The jobs of a run as a matrix of GitHub Actions: which machines run what. Pure.

A job that needs no GPU goes to a hosted runner, one that needs N to a machine with as many. Which machine that is
stands in the workflow: an entry says how many GPUs it needs and names no runner, as the code that makes it may be a
pull request's. Whether the compute capability is enough is looked at there: what can't run is skipped with its reason.
"""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from gpu_casebook.errors import UsageError

if TYPE_CHECKING:
    from gpu_casebook.corpus.model import Job

MOST = 256
"""Jobs that GitHub makes of one matrix."""
MANY = 2
"""GPUs of the largest kind of machine, which has so many or more."""

Entry = dict[str, str | int]


class Per(StrEnum):
    """What an entry is made for: one case in one environment, or all that one kind of machine can run."""

    CASE = "case"
    MACHINE = "machine"


def matrix(jobs: "Iterable[Job]", gpus: Sequence[int] = (), per: Per = Per.CASE, most: int = MOST) -> str:
    """Return JSON on one line, such as {"include": [...]}; its list is empty where there is nothing to do.

    `gpus`: kinds of machines by their GPUs, `MANY` for that many or more; all if there are none. Where there would be
    more than `most` entries, one has several cases. Raises UsageError where that does not do.
    """
    wanted = [job for job in jobs if not gpus or _machine(job) in gpus]
    return json.dumps({"include": _of_cases(wanted, most) if per is Per.CASE else _of_machines(wanted)})


def _machine(job: "Job") -> int:
    return min(job.gpus, MANY)


def _of_machines(jobs: "Iterable[Job]") -> list[Entry]:
    """Return an entry for each kind of machine; cases whose manifest is broken, and names no environment, apart."""

    def kind(job: "Job") -> tuple[int, bool]:
        return _machine(job), bool(job.environment)

    groups = [list(group) for _, group in groupby(sorted(jobs, key=kind), key=kind)]
    return [
        _entry(_machine(group[0]), sorted({job.environment for job in group}), sorted({job.case for job in group}))
        for group in groups
    ]


def _of_cases(jobs: "Iterable[Job]", most: int) -> list[Entry]:
    alike: dict[tuple[int, str], list[str]] = {}
    for job in sorted(jobs, key=lambda job: (job.gpus, job.environment, job.case)):
        alike.setdefault((job.gpus, job.environment), []).append(job.case)
    if len(alike) > most:
        raise UsageError(f"{len(alike)} kinds of environment are too many for a matrix of {most}; select fewer")
    size = _size([len(cases) for cases in alike.values()], most)
    return [
        _entry(gpus, [environment], cases[start : start + size])
        for (gpus, environment), cases in alike.items()
        for start in range(0, len(cases), size)
    ]


def _entry(gpus: int, environments: Sequence[str], cases: Sequence[str]) -> Entry:
    """What `corpus CASE... --environment NAME...` runs on one machine. An environment may have no name."""
    name, more = f"{cases[0]}/{environments[0]}".rstrip("/"), len(cases) - 1
    return {
        "name": f"{name} and {more} more" if more else name,
        "cases": " ".join(cases),
        "environments": " ".join(environments),
        "gpus": gpus,
    }


def _size(counts: Sequence[int], most: int) -> int:
    """Return the least number of cases for one entry that makes no more than `most` entries."""
    size = 1
    while sum(-(-count // size) for count in counts) > most:
        size += 1
    return size
