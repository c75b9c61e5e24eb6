"""reports/README.md: every case on every machine it was run on. Evidence in, text out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_casebook.evidence import Evidence, Rate, Variant, Verdict
from gpu_casebook.records.watched import Change, Sighting, State, Watched
from gpu_casebook.report.markdown import Markdown, prose, render_template
from gpu_casebook.report.words import newest_hardware_first, page_name
from gpu_casebook.words import utc

CHANGES_SHOWN = 20

NOT_RUN = Rate(k=0, n=0, low=0.0, high=1.0)


@dataclass(frozen=True)
class Row:
    run: Evidence
    page: Markdown
    repro: Rate
    fixed: Rate


@dataclass(frozen=True)
class Fixed:
    """A case whose failure the newest releases do not have."""

    case: str
    environment: str
    seen: Sighting


def index(runs: Sequence[Evidence], watched: Sequence[Watched] = ()) -> str:
    """The page over all cases: by id, hardware before simulated, newest first; and what newer releases changed."""
    ids = sorted({run.case.id for run in runs})
    ordered = [run for case in ids for run in newest_hardware_first([run for run in runs if run.case.id == case])]
    count = Counter(run.verdict for run in runs)
    return render_template(
        "index.md.j2",
        rows=[_row(run) for run in ordered],
        cases=len(ids),
        tally=", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict]),
        changes=_changes(watched),
        fixed=_fixed(watched),
    )


def _changes(watched: Sequence[Watched]) -> list[Change]:
    """The newest first."""
    every = [change for record in watched for change in record.changes()]
    return sorted(every, key=lambda change: (utc(change.after.since), change.case), reverse=True)[:CHANGES_SHOWN]


def _fixed(watched: Sequence[Watched]) -> list[Fixed]:
    latest = ((record.case, name, record.latest(name)) for record in watched for name in record.history)
    return [Fixed(case, name, seen) for case, name, seen in latest if seen and seen.state is State.FIXED]


def _row(run: Evidence) -> Row:
    return Row(
        run=run,
        page=Markdown(f"[{prose(run.case.id)}]({page_name(run.case.id)})"),
        repro=run.rates.get(Variant.REPRO, NOT_RUN),
        fixed=run.rates.get(Variant.FIXED, NOT_RUN),
    )
