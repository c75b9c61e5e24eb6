"""The jobs of a run as a matrix of GitHub Actions: which machines run what. Pure.

A job that needs no GPU goes to a hosted runner, the others to machines of one's own. These have kinds: `gpu1` with one
GPU, `gpu2` with two or more, `gpu1-sm90` where the architecture is known too. What they are called for GitHub stands in
a variable of the repository: an entry names a kind and no runner, as the code that makes it may be a pull request's.
"""

import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from failure_signature.text import plural
from gpu_casebook.errors import UsageError

if TYPE_CHECKING:
    from casebook_workbench.corpus.model import Job

MOST = 256
"""Jobs that GitHub makes of one matrix."""
MANY = 2
"""GPUs of the largest kind of machine, which has so many or more."""
HOSTED = "hosted"
_KIND = re.compile(rf"gpu([1-{MANY}])(?:-sm(\d+)(\d))?")

Entry = dict[str, str]


class Per(StrEnum):
    """What an entry is made for: one case in one environment, or all that one kind of machine can run."""

    CASE = "case"
    MACHINE = "machine"


class Kind(NamedTuple):
    """A kind of machine; without a compute capability nobody has said of which architecture its GPUs are."""

    name: str
    gpus: int
    capability: Version | None = None

    def suits(self, job: "Job") -> bool:
        """Return whether it may run the job. Where the architecture is not known, the job is skipped there if not."""
        enough = self.gpus == min(job.gpus, MANY)
        return enough and (self.capability is None or self.capability in SpecifierSet(job.compute_capability or ""))


ANY = [Kind(HOSTED, 0), *(Kind(f"gpu{number}", number) for number in range(1, MANY + 1))]
"""Where nobody has said which machines there are."""


def kinds(runners: str) -> list[Kind]:
    """Return the kinds that a JSON object names, in the order in which they are asked: what is known of before others.

    Raises UsageError for anything else.
    """
    try:
        named = json.loads(runners or "{}")
        matches = {name: _KIND.fullmatch(name) for name in named}
    except (ValueError, TypeError):
        named, matches = None, {}
    if not isinstance(named, dict):
        raise UsageError('--runners: not a JSON object such as {"gpu1": "my-scale-set"}')
    found = []
    for name, match in matches.items():
        if match is None:
            raise UsageError(
                f"--runners: {name!r} is no kind of machine; those are gpu1, gpu{MANY}, gpu1-sm90 and the like"
            )
        number, major, minor = match.groups()
        found.append(Kind(name, int(number), Version(f"{major}.{minor}") if major else None))
    return sorted(found, key=lambda kind: (kind.capability is None, kind.capability or Version("0"), kind.name))


def matrix(jobs: "Iterable[Job]", there: Sequence[Kind] = ANY, per: Per = Per.CASE, most: int = MOST) -> str:
    """Return JSON on one line, such as {"include": [...]}; its list is empty where there is nothing to do.

    `there`: the kinds of machine; a job that fits none of them is dropped. Above `most` entries, cases are grouped;
    raises UsageError if there are still too many.
    """
    placed = [(kind.name, job) for job in jobs for kind in [place(job, there)] if kind]
    return json.dumps({"include": _of_cases(placed, most) if per is Per.CASE else _of_machines(placed)})


def place(job: "Job", there: Sequence[Kind]) -> Kind | None:
    """Return the machine for a job: the first that suits."""
    return next((kind for kind in there if kind.suits(job)), None)


def lacking(job: "Job") -> str:
    """Return why a job is not run that there is no machine for."""
    capable = f" of compute capability {job.compute_capability}" if job.compute_capability else ""
    return f"no runner is named that has {plural(job.gpus, 'GPU')}{capable}"


def _of_machines(placed: "Iterable[tuple[str, Job]]") -> list[Entry]:
    """Return an entry for each kind of machine; cases whose manifest is broken, and names no environment, apart."""

    def kind(each: "tuple[str, Job]") -> tuple[bool, str, bool]:
        return each[0] != HOSTED, each[0], bool(each[1].environment)

    groups = [list(group) for _, group in groupby(sorted(placed, key=kind), key=kind)]
    return [
        _entry(group[0][0], sorted({job.environment for _, job in group}), sorted({job.case for _, job in group}))
        for group in groups
    ]


def _of_cases(placed: "Iterable[tuple[str, Job]]", most: int) -> list[Entry]:
    alike: dict[tuple[str, str], list[str]] = {}
    for runner, job in sorted(placed, key=lambda each: (each[1].gpus, each[0], each[1].environment, each[1].case)):
        alike.setdefault((runner, job.environment), []).append(job.case)
    if len(alike) > most:
        raise UsageError(f"{len(alike)} kinds of environment are too many for a matrix of {most}; select fewer")
    size = _size([len(cases) for cases in alike.values()], most)
    return [
        _entry(runner, [environment], cases[start : start + size])
        for (runner, environment), cases in alike.items()
        for start in range(0, len(cases), size)
    ]


def _entry(runner: str, environments: Sequence[str], cases: Sequence[str]) -> Entry:
    """What `corpus CASE... --environment NAME...` runs on one machine. An environment may have no name."""
    name, more = f"{cases[0]}/{environments[0]}".rstrip("/"), len(cases) - 1
    return {
        "name": f"{name} and {more} more" if more else name,
        "cases": " ".join(cases),
        "environments": " ".join(environments),
        "runner": runner,
    }


def _size(counts: Sequence[int], most: int) -> int:
    """Return the least number of cases for one entry that makes no more than `most` entries."""
    size = 1
    while sum(-(-count // size) for count in counts) > most:
        size += 1
    return size
