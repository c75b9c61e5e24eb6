"""The part of the index that says what newer releases changed, by the records of `watch`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_casebook.records.watched import Change, Sighting, State, Watched, all_watched
from gpu_casebook.report.markdown import render_template
from gpu_casebook.text import utc

CHANGES_SHOWN = 20


def section(reports: Path, unread: Callable[[str], object]) -> str:
    """Return what the records in these reports say; `unread` is told which can't be read."""
    return of(all_watched(reports, unread))


def of(watched: Sequence[Watched]) -> str:
    return render_template("newer.md.j2", changes=_changes(watched), fixed=_fixed(watched))


def _changes(watched: Sequence[Watched]) -> list[Change]:
    """The newest first."""
    every = [change for record in watched for change in record.changes()]
    return sorted(every, key=lambda change: (utc(change.after.since), change.case), reverse=True)[:CHANGES_SHOWN]


def _fixed(watched: Sequence[Watched]) -> list[tuple[str, str, Sighting]]:
    """Return case, environment and the last sighting of each failure that the newest releases do not have."""
    latest = ((record.case, name, record.latest(name)) for record in watched for name in record.history)
    return [(case, name, seen) for case, name, seen in latest if seen and seen.state is State.FIXED]
