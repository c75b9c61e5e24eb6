"""A run of the corpus on disk -> its page and what lies beside it. The only part of this that touches files."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.corpus import journal
from gpu_casebook.corpus.model import Run
from gpu_casebook.corpus.report import plots
from gpu_casebook.corpus.report.junit import junit
from gpu_casebook.corpus.report.markdown import Picture, page
from gpu_casebook.corpus.report.model import RunSummary
from gpu_casebook.corpus.report.summary import summarise
from gpu_casebook.errors import CasebookError
from gpu_casebook.files import write_whole
from gpu_casebook.report.markdown import Markdown

PAGE, SUMMARY, JUNIT = "README.md", "summary.json", "junit.xml"
DURATIONS, RATES = "durations.svg", "rates.svg"
KEPT = 30
"""Runs, the newest ones, that changes and plots look at."""
NO_MATPLOTLIB = Markdown("No plots: matplotlib is not here. `pip install -e '.[plots]'` in the checkout brings it.")


class KeptRun(NamedTuple):
    """Runs on disk, oldest first, and why others can't be read."""

    runs: list[Run]
    unreadable: list[str]


def write(reports: Path, run: Run) -> Path:
    """Write the run's page, which is returned, summary, JUnit XML and plots into <reports>/runs/<id>/.

    Each file whole or not at all. Earlier runs are read for what changed; one that can't be read is named on the page
    and stops nothing. Raises OSError.
    """
    before = earlier(reports, run)
    summary = summarise(run, before.runs, before.unreadable)
    directory = journal.runs_directory(reports) / run.id
    directory.mkdir(parents=True, exist_ok=True)
    drawn = _plots([*before.runs, run])
    for name, picture in drawn.items():
        write_whole(directory / name, picture.decode())
    write_whole(directory / SUMMARY, as_json(summary))
    write_whole(directory / JUNIT, junit(summary))
    pictures = [Picture(name, title) for name, title in _TITLES.items() if name in drawn]
    write_whole(directory / PAGE, page(summary, pictures, "" if drawn else NO_MATPLOTLIB))
    return directory / PAGE


def read(reports: Path, id_: str | None = None) -> RunSummary:
    """What there is to tell of a run that is on disk: the one named, or the newest. Raises CasebookError."""
    run = journal.read(journal.find(reports, id_))
    before = earlier(reports, run)
    return summarise(run, before.runs, before.unreadable)


def earlier(reports: Path, run: Run) -> KeptRun:
    """The newest of the runs before this one."""
    ids = [id_ for id_ in journal.ids(reports) if id_ < run.id][-KEPT:]
    kept = KeptRun([], [])
    for id_ in ids:
        try:
            kept.runs.append(journal.read(journal.runs_directory(reports) / id_))
        except CasebookError as error:
            kept.unreadable.append(f"run {id_}: {error}")
    return kept


def as_json(summary: RunSummary) -> str:
    return summary.model_dump_json(indent=1) + "\n"


_TITLES = {DURATIONS: "How long each case took in each run", RATES: "Share of trials as declared in each run"}


def _plots(runs: Sequence[Run]) -> dict[str, bytes]:
    """None where matplotlib is not there."""
    try:
        return {DURATIONS: plots.durations(runs), RATES: plots.rates(runs)}
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return {}
