"""reports/README.md: every case on every machine it was run on. Evidence in, text out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runner.evidence import Evidence, Rate, Variant, Verdict
from runner.report.engine import render
from runner.report.escape import Markdown, prose
from runner.report.words import newest_hardware_first, page_name

NOT_RUN = Rate(k=0, n=0, low=0.0, high=1.0)


@dataclass(frozen=True)
class Row:
    run: Evidence
    page: Markdown
    repro: Rate
    fixed: Rate


def index(runs: Sequence[Evidence]) -> str:
    """The page over all cases: by id, hardware before simulated, newest first."""
    ids = sorted({run.case.id for run in runs})
    ordered = [run for case in ids for run in newest_hardware_first([run for run in runs if run.case.id == case])]
    count = Counter(run.verdict for run in runs)
    return render(
        "index.md.j2",
        rows=[_row(run) for run in ordered],
        cases=len(ids),
        tally=", ".join(f"{count[verdict]} {verdict}" for verdict in Verdict if count[verdict]),
    )


def _row(run: Evidence) -> Row:
    return Row(
        run=run,
        page=Markdown(f"[{prose(run.case.id)}]({page_name(run.case.id)})"),
        repro=run.rates.get(Variant.REPRO, NOT_RUN),
        fixed=run.rates.get(Variant.FIXED, NOT_RUN),
    )
