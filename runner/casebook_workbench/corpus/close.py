"""The end of a run: its pages, what is printed of it, and its exit status."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from casebook_workbench.corpus import summary
from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import End, Run
from casebook_workbench.corpus.report import files as report
from casebook_workbench.corpus.resume import again
from gpu_casebook.errors import CasebookError
from gpu_casebook.report.pages import render

Say = Callable[[str], None]


def close(record: Journal, say: Say) -> int:
    """Write the pages and print how the run ended. A run that had ended before has its pages."""
    run = record.run
    if run.ended is None and not run.left:
        ended = {"ended": datetime.now(UTC), "disk_after_bytes": shutil.disk_usage(record.directory).used}
        _pages(run.model_copy(update=ended), say)
        record.update(**ended)
    elif run.left:
        _pages(run, say)
    for line in summary.lines(run):
        say(line)
    if run.left:
        say(f"go on with: {again(run)}")
    page = record.directory / report.PAGE
    if page.is_file():
        here = Path.cwd()
        say(f"report: {page.relative_to(here) if page.is_relative_to(here) else page}")
    return summary.status(run)


def _pages(run: Run, say: Say) -> None:
    """Write the cases' pages and the run's own. What can't be written is reported; the run's end stays the same."""
    reports = Path(run.settings.reports)
    try:
        render(reports, {each.job.case for each in run.finished if each.end is End.RAN})
        report.write(reports, run)
    except (CasebookError, OSError) as error:
        say(f"pages: {error}")
