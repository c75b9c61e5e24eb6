"""A run of the corpus on disk -> its page and what lies beside it. The only part of this that touches files."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.model import Run
from casebook_workbench.corpus.report.junit import junit
from casebook_workbench.corpus.report.markdown import Picture, page
from casebook_workbench.corpus.report.model import RunSummary
from casebook_workbench.corpus.report.strips import durations, gpus, rates
from casebook_workbench.corpus.report.summary import summarise
from gpu_casebook.errors import CasebookError
from gpu_casebook.files import write_whole

PAGE, SUMMARY, JUNIT = "README.md", "summary.json", "junit.xml"
KEPT = 30  # changes and plots look at so many runs, the newest ones


class EarlierRuns(NamedTuple):
    """Runs before another one, oldest first."""

    runs: list[Run]
    unreadable: list[str]  # which others can't be read, and why


def write(reports: Path, run: Run) -> Path:
    """Write the run's page, which is returned, summary, JUnit XML and plots into <reports>/runs/<id>/.

    Each file whole or not at all. Earlier runs are read for what changed; one that can't be read is named on the page
    and stops nothing. Raises OSError.
    """
    before = earlier(reports, run)
    summary = summarise(run, *before)
    directory = journal.runs_directory(reports) / run.id
    pictures = _draw(directory, [*before.runs, run])
    summary.write(directory / SUMMARY)
    write_whole(directory / JUNIT, junit(summary))
    return write_whole(directory / PAGE, page(summary, pictures))


def read(reports: Path, id_: str | None = None) -> RunSummary:
    """Summarise a run that is on disk: the one named, or the newest. Raises CasebookError."""
    run = journal.read(journal.find(reports, id_))
    return summarise(run, *earlier(reports, run))


def earlier(reports: Path, run: Run) -> EarlierRuns:
    """Read the newest of the runs before this one."""
    found = EarlierRuns([], [])
    for id_ in [id_ for id_ in journal.ids(reports) if id_ < run.id][-KEPT:]:
        try:
            found.runs.append(journal.read(journal.runs_directory(reports) / id_))
        except CasebookError as error:
            found.unreadable.append(f"run {id_}: {error}")
    return found


def as_json(summary: RunSummary) -> str:
    return summary.model_dump_json(indent=1) + "\n"


def _draw(directory: Path, runs: Sequence[Run]) -> list[Picture]:
    """Write the plots and return them."""
    drawn = {
        Picture("durations.svg", "How long each case took in each run"): durations(runs),
        Picture("rates.svg", "Share of trials as declared in each run"): rates(runs),
    }
    if any(done.trials for done in runs[-1].finished):
        drawn[Picture("gpus.svg", "Which case had a trial on which GPU, and when")] = gpus(runs[-1])
    for picture, svg in drawn.items():
        write_whole(directory / picture.file, svg)
    return list(drawn)
