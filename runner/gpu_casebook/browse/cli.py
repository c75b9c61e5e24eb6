"""`casebook list` and `casebook show`: what there is, and all about one case. Nothing is run."""

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from gpu_casebook.cli.base import CorpusOption, app, ends_in_one_line, root, root_with
from gpu_casebook.corpus.cli import CaseGlobs, EnvironmentsOption, FailureOption, GradeOption, ProjectOption

JsonOption = Annotated[bool, typer.Option("--json", help="The same as JSON.")]


@app.command(name="list")
@ends_in_one_line
def list_cases(
    cases: CaseGlobs = None,
    failure: FailureOption = None,
    project: ProjectOption = None,
    environment: EnvironmentsOption = None,
    grade: GradeOption = None,
    status: Annotated[
        Literal["fixed", "open"] | None, typer.Option(help="Only what upstream has fixed, or has not.")
    ] = None,
    corpus: CorpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the cases: id, kind of failure, upstream project and whether it has the fix, environments, title."""
    from gpu_casebook.browse.listing import listed
    from gpu_casebook.corpus.selection import Selection
    from gpu_casebook.errors import CasebookError

    selection = Selection(cases=cases, failure=failure, project=project, environment=environment, grade=grade)
    tops = dict.fromkeys([root(corpus), root()] if corpus else [root()])
    rows, broken = listed(list(tops), selection, status)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        columns = [(row.id, row.failure, row.project, row.status, ", ".join(row.environments)) for row in rows]
        widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
        for fields, row in zip(columns, rows, strict=True):
            print(*(field.ljust(width) for field, width in zip(fields, widths, strict=True)), row.title, sep="  ")
    if broken:
        raise CasebookError("\n".join(broken))


@app.command()
@ends_in_one_line
def show(
    case: Annotated[str, typer.Argument(help="The case's id.")],
    corpus: CorpusOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a case: what users saw and why, its environments, scripts and evidence, and how to run it."""
    from gpu_casebook.browse.showing import lines, shown_case
    from gpu_casebook.manifest.case import find, known_images

    top = root_with(case, corpus)
    found = shown_case(top, find(top, case, known_images(top)))
    print(json.dumps(asdict(found), indent=1) if as_json else "\n".join(lines(found)))
