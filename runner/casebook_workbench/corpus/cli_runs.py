"""Verbs around runs of the corpus: reports of a run (run-report, run-merge), and the jobs of a CI matrix (matrix)."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from casebook_workbench.corpus.cli import (
    CaseGlobs,
    ChangedOption,
    EnvironmentsOption,
    FailureOption,
    GradeOption,
    ProjectOption,
)
from casebook_workbench.corpus.matrix import MANY, Per
from gpu_casebook.cli.base import PublishOption, app, ends_in_one_line, place_of, root, shown


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
    reports: Annotated[Path | None, typer.Option(help="Where the runs are kept. Without it: as for corpus.")] = None,
    publish: PublishOption = False,
) -> None:
    """Write the page, JSON, JUnit XML and plots of a run of the corpus again, from its record."""
    from casebook_workbench.corpus import journal, report

    top = place_of(root(), reports, publish=publish)
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


@app.command()
@ends_in_one_line
def matrix(
    cases: CaseGlobs = None,
    failure: FailureOption = None,
    project: ProjectOption = None,
    environment: EnvironmentsOption = None,
    grade: GradeOption = None,
    changed_since: ChangedOption = None,
    hosted: Annotated[bool, typer.Option("--hosted", help="Only for hosted runners: what needs no GPU.")] = False,
    runners: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help=f"Only for these: an object whose names are gpu1, gpu{MANY} (or more GPUs), gpu1-sm90 and the like.",
        ),
    ] = None,
    not_run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A reports directory for the record of what has none of these runners."),
    ] = None,
    per: Annotated[Per, typer.Option(help="An entry for each case, or one for each kind of machine.")] = Per.CASE,
) -> None:
    """Print a matrix for GitHub Actions: which runner is to run which cases."""
    from casebook_workbench.corpus import matrix as made
    from casebook_workbench.corpus.merge import record
    from casebook_workbench.corpus.model import End, ended
    from casebook_workbench.corpus.selection import Selection, select

    selection = Selection(
        cases=cases, failure=failure, project=project, environment=environment, grade=grade, changed_since=changed_since
    )
    there = made.ANY[:1] if hosted else made.ANY if runners is None else made.kinds(runners)
    jobs = select(root(), selection).jobs
    without = [job for job in jobs if job.gpus and made.place(job, there) is None]
    if not_run and without:
        record(root(), not_run, [ended(job, End.SKIPPED, made.lacking(job)) for job in without], str(selection))
    print(made.matrix(jobs, there, per))


@app.command(name="run-merge")
@ends_in_one_line
def run_merge(
    sources: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Reports directories, each with a run.")],
    selection: Annotated[str, typer.Option(help="What all of them together are a run of.")] = "all",
    reports: Annotated[Path | None, typer.Option(help="Where the one run goes. Without it: as for corpus.")] = None,
    publish: PublishOption = False,
) -> None:
    """Merge runs that several machines made, each of a part of the corpus, into one, and write its page."""
    from casebook_workbench.corpus import report
    from casebook_workbench.corpus.merge import gather
    from gpu_casebook.report.pages import render

    top = place_of(root(), reports, publish=publish)
    run = gather(top, sources, selection)
    render(top, None)
    print(f"wrote {shown(report.write(top, run))}")
