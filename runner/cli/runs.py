"""What became of runs of the corpus: run-report."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runner.cli.base import app, ends_in_one_line, root, shown


class Format(StrEnum):
    PAGE = "page"
    JSON = "json"
    JUNIT = "junit"
    SUMMARY = "summary"
    COMMENT = "comment"


@app.command(name="run-report")
@ends_in_one_line
def run_report(
    run: Annotated[str | None, typer.Argument(metavar="[RUN-ID]", help="Without it: the newest run.")] = None,
    to_print: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Print this and write nothing. `summary` is a CI job's, `comment` a pull request's.",
        ),
    ] = None,
    reports: Annotated[
        Path | None, typer.Option(help="Where the runs are kept. Without it: reports/ in the checkout.")
    ] = None,
) -> None:
    """Write the page, JSON, JUnit XML and plots of a run of the corpus again, from its record."""
    from runner.corpus import journal
    from runner.report import run as report

    top = reports or root() / "reports"
    if to_print is None:
        print(f"wrote {shown(report.write(top, journal.read(journal.find(top, run))))}")
        return
    rendered = {
        Format.PAGE: report.page,
        Format.JSON: report.as_json,
        Format.JUNIT: report.junit,
        Format.SUMMARY: report.job_summary,
        Format.COMMENT: report.comment,
    }[to_print](report.read(top, run))
    sys.stdout.write(rendered)
