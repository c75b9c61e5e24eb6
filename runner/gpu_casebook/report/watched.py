"""What `watch` saw of a case with newer releases: reports/watch/<case>.json, and the section of the index on it.

The core reads these records, since each run writes the index; the verb `watch` writes them.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from failure_signature.document import Moment
from failure_signature.text import utc
from gpu_casebook.document import Document
from gpu_casebook.evidence import slug
from gpu_casebook.report.markdown import render_template


class State(StrEnum):
    """What the newest releases make of a case in an environment."""

    STILL = "still-reproduces"
    FIXED = "fixed-since"
    OTHERWISE = "fails-otherwise"
    CANNOT = "cannot-install"


class Sighting(Document):
    """One state, from the first time it was seen (`since`) to the last (`last`) with the same versions."""

    state: State
    fix: bool | None = None  # whether fixed.py gives its proof there; None if it was not run
    why: str
    versions: dict[str, str] = Field(default_factory=dict)  # of the packages that the case pins
    moved: list[str] = Field(default_factory=list)  # those of them that went to their newest release
    first_fixed: list[str] = Field(default_factory=list)  # one of them is the first release without the failure
    trials: int = 0
    since: Moment
    last: Moment
    engine: str
    digest: str
    runner: str

    def same_ground(self, versions: dict[str, str], digest: str) -> bool:
        """Return whether no release came out, and nothing of the case changed, since this was seen."""
        return self.versions == versions and self.digest == digest

    def same_finding(self, other: "Sighting") -> bool:
        return self.same_ground(other.versions, other.digest) and (self.state, self.fix) == (other.state, other.fix)

    @property
    def packages(self) -> str:
        """The packages that went to their newest release, with that version."""
        return ", ".join(f"{name} {self.versions[name]}" for name in self.moved if name in self.versions)


class Change(NamedTuple):
    """From one state to another. An environment that was never looked at, or could not be, is no change."""

    case: str
    environment: str
    before: Sighting
    after: Sighting


class Watched(Document):
    """All sightings of a case by environment, the oldest first."""

    what = "a record of watching"
    remedy = "remove it, or repair it"

    schema_version: Literal[1] = 1
    case: str
    history: dict[str, list[Sighting]] = Field(default_factory=dict)

    def latest(self, environment: str) -> Sighting | None:
        return next(reversed(self.history.get(environment, [])), None)

    def with_sighting(self, environment: str, seen: Sighting) -> "Watched":
        """Return the record with one more sighting; the same finding again extends the last one."""
        known = self.history.get(environment, [])
        if known and known[-1].same_finding(seen):
            first_fixed = seen.first_fixed or known[-1].first_fixed
            longer = seen.model_copy(update={"since": known[-1].since, "first_fixed": first_fixed})
            known, seen = known[:-1], longer
        return self.model_copy(update={"history": {**self.history, environment: [*known, seen]}})

    def changes(self) -> Iterator[Change]:
        """Yield every change of state, and every fix that began or ceased to hold."""
        for environment, sightings in self.history.items():
            for before, after in pairwise(sightings):
                if changed(before, after):
                    yield Change(self.case, environment, before, after)


def changed(before: Sighting, after: Sighting) -> bool:
    """Return whether the state differs, or whether the fix holds."""
    fix = None not in {before.fix, after.fix} and before.fix != after.fix
    return before.state is not after.state or fix


def watched_path(reports: Path, case: str) -> Path:
    return reports / "watch" / f"{slug(case)}.json"


def known(reports: Path, case: str) -> Watched:
    """Return what was seen of the case so far. Raises CasebookError."""
    path = watched_path(reports, case)
    return Watched.read(path) if path.is_file() else Watched(case=case)


def all_watched(reports: Path, unread: Callable[[str], object]) -> Sequence[Watched]:
    """Return the record of every case, by id; `unread` is told which can't be read."""
    return [found for _, found in Watched.read_all(sorted((reports / "watch").glob("[!.]*.json")), unread)]


# The part of the index that says what newer releases changed

CHANGES_SHOWN = 20


def section(watched: Sequence[Watched]) -> str:
    return render_template("newer.md.j2", changes=_changes(watched), fixed=_fixed(watched))


def _changes(watched: Sequence[Watched]) -> list[Change]:
    """The newest first."""
    every = [change for record in watched for change in record.changes()]
    return sorted(every, key=lambda change: (utc(change.after.since), change.case), reverse=True)[:CHANGES_SHOWN]


def _fixed(watched: Sequence[Watched]) -> list[tuple[str, str, Sighting]]:
    """Return case, environment and the last sighting of each failure that the newest releases do not have."""
    latest = ((record.case, name, record.latest(name)) for record in watched for name in record.history)
    return [(case, name, seen) for case, name, seen in latest if seen and seen.state is State.FIXED]
