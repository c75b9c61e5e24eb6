"""reports/README.md: every case on every machine it was run on. Evidence in, text out."""

from collections import Counter
from collections.abc import Sequence

from gpu_casebook.evidence import Evidence, Verdict
from gpu_casebook.records.watched import Change, Sighting, State, Watched
from gpu_casebook.report.markdown import render_template
from gpu_casebook.report.words import newest_hardware_first
from gpu_casebook.words import utc

CHANGES_SHOWN = 20


def index(runs: Sequence[Evidence], watched: Sequence[Watched] = ()) -> str:
    """The page over all cases: by id, hardware before simulated, newest first; and what newer releases changed."""
    ids = sorted({run.case.id for run in runs})
    ordered = [run for case in ids for run in newest_hardware_first([run for run in runs if run.case.id == case])]
    count = Counter(run.verdict for run in runs)
    return render_template(
        "index.md.j2",
        runs=ordered,
        cases=len(ids),
        tally=", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict]),
        changes=_changes(watched),
        fixed=_fixed(watched),
    )


def _changes(watched: Sequence[Watched]) -> list[Change]:
    """The newest first."""
    every = [change for record in watched for change in record.changes()]
    return sorted(every, key=lambda change: (utc(change.after.since), change.case), reverse=True)[:CHANGES_SHOWN]


def _fixed(watched: Sequence[Watched]) -> list[tuple[str, str, Sighting]]:
    """Case, environment and what was seen last, for failures that the newest releases do not have."""
    latest = ((record.case, name, record.latest(name)) for record in watched for name in record.history)
    return [(case, name, seen) for case, name, seen in latest if seen and seen.state is State.FIXED]
