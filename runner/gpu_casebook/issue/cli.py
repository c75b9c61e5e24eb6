"""`casebook issue`: a bug report for upstream, from evidence that is there."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import app, ends_in_one_line, root, shown


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
    reports: Annotated[Path | None, typer.Option(help="Where the evidence is. Without it: reports/.")] = None,
) -> None:
    """Write a bug report in the upstream project's own form, ready to paste; nothing is run.

    Home paths, user and host names, tokens and addresses are taken out.
    """
    from gpu_casebook.issue.filing import file
    from gpu_casebook.issue.filing import gist as attach
    from gpu_casebook.issue.issue import LIMIT

    top = root()
    filed = file(top, case, reports or top / "reports", environment, evidence)
    # The report itself goes to stdout, so that it can be piped on; what is said about it does not.
    say = _to_stdout if output else _to_stderr
    for note in filed.notes:
        say(note)
    report = filed.issue
    for cut in report.cut:
        say(f"cut to fit: {cut}")
    _removed(say, "taken out", report.removed)
    if gist:
        paths, counts = attach(filed, gist, top)
        say(f"to attach: {', '.join(shown(path) for path in paths)}")
        _removed(say, "taken out of them", counts)
    say(f"title: {report.title}")
    say(f"for https://github.com/{report.project}/issues/new, {len(report.body):,} of {LIMIT:,} characters")
    if output is None:
        print(report.body)
        return
    output.write_text(report.body, encoding="utf-8")
    say(f"wrote {shown(output)}")


def _to_stdout(text: str) -> None:
    print(text)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def _removed(say: Callable[[str], None], what: str, counts: Counter[str]) -> None:
    told = ", ".join(f"{kind} ({count})" for kind, count in sorted(counts.items()) if count)
    if told:
        say(f"{what}: {told}")
