"""`casebook issue`: a bug report for upstream, from evidence that is there."""

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import app, ends_in_one_line, root, shown
from gpu_casebook.places import reports_of


@app.command()
@ends_in_one_line
def issue(
    case: Annotated[str, typer.Argument(help="The case's id.")],
    environment: Annotated[
        str | None, typer.Option(help="Evidence from this environment. Without it: the best that is there.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report here.")
    ] = None,
    gist: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder for the files to attach: scripts, lock, evidence.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option(metavar="FILE", help="Rest on this evidence, and no other.")] = None,
    reports: Annotated[
        Path | None, typer.Option(help="Where the evidence is. Without it: local/ and reports/.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Even if no code of the project ran, or the case was edited since.")
    ] = False,
) -> None:
    """Write a bug report in the upstream project's own form, ready to paste; nothing is run.

    Home paths, user and host names, tokens and addresses are taken out.
    """
    from casebook_workbench.issue.filing import file
    from casebook_workbench.issue.filing import gist as attach
    from casebook_workbench.issue.issue import LIMIT

    top = root()
    places = [reports] if reports else [reports_of(top), top / "reports"]
    filed = file(top, case, places, environment, evidence, anyway=anyway)
    # The report itself goes to stdout, so that it can be piped on; then what is said about it does not.
    say = partial(print, file=sys.stdout if output else sys.stderr)
    report = filed.issue
    for line in (*filed.notes, *(f"cut to fit: {cut}" for cut in report.cut), *_removed("taken out", report.removed)):
        say(line)
    if gist:
        paths, counts = attach(filed, gist, top)
        say(f"to attach: {', '.join(shown(path) for path in paths)}")
        for line in _removed("taken out of them", counts):
            say(line)
    say("a comment, as that report is open" if report.comment else f"title: {report.title}")
    say(f"for {report.target}, {len(report.body):,} of {LIMIT:,} characters")
    if output is None:
        print(report.body)
        return
    output.write_text(report.body, encoding="utf-8")
    say(f"wrote {shown(output)}")


def _removed(what: str, counts: Counter[str]) -> list[str]:
    kinds = [f"{kind} ({count})" for kind, count in sorted(counts.items())]
    return [f"{what}: {', '.join(kinds)}"] if kinds else []
