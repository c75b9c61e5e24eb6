"""`casebook list`, `show`, `match`, `export` and `site`: the cases to look at. Nothing is run."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from casebook_workbench.corpus.cli import CaseGlobs, EnvironmentsOption, FailureOption, GradeOption, ProjectOption
from failure_signature.text import plural, seconds, size
from gpu_casebook.cli.base import CorpusOption, app, chosen_cases, ends_in_one_line, root, root_with, shown
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.places import as_command

if TYPE_CHECKING:
    from casebook_workbench.catalogue.match.rank import Match

SHOWN = 3
"""Cases that `match` shows."""
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
    from casebook_workbench.catalogue.listing import listed
    from casebook_workbench.corpus.selection import Selection

    selection = Selection(cases=cases, failure=failure, project=project, environment=environment, grade=grade)
    tops = dict.fromkeys([root(corpus), root()] if corpus else [root()])
    rows, broken = listed(list(tops), selection, status)
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        columns = [
            (row["id"], row["failure"], row["project"], row["status"], ", ".join(row["environments"])) for row in rows
        ]
        widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
        for fields, row in zip(columns, rows, strict=True):
            print(*(field.ljust(width) for field, width in zip(fields, widths, strict=True)), row["title"], sep="  ")
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
    from casebook_workbench.catalogue.showing import lines, shown_case
    from gpu_casebook.manifest.case import find, known_images

    top = root_with(case, corpus)
    found = shown_case(top, find(top, case, known_images(top)))
    print(json.dumps(found, indent=1) if as_json else "\n".join(lines(found)))


@app.command()
@ends_in_one_line
def match(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE|WORDS]...", help="A log's file, or words. Without any: what comes on stdin."),
    ] = None,
    packages: Annotated[
        Path | None, typer.Option(help="What `pip list` or torch's collect_env printed, for the versions.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Cases to show at most.")] = SHOWN,
    corpus: CorpusOption = None,
) -> None:
    """Find the known case that a failure is: from its log or trace, or from words for it.

    python train.py 2>&1 | casebook match
    """
    from casebook_workbench.catalogue.match.known import read_all
    from casebook_workbench.catalogue.match.rank import rank

    text = _text(words or [])
    if not text.strip():
        raise UsageError("nothing to look for; give a log's file or words, or pipe a log in")
    known = read_all(*dict.fromkeys([root(corpus), root()]))
    found = rank(known, text, _read(packages) if packages else "")
    sure = False
    for number, each in enumerate(found[:top], 1):
        print(f"{number}. {each.case.id}{'  (likely)' if each.likely else ''}")
        print(f"   {each.case.symptom or each.case.title}")
        at = root_with(each.case.id, corpus)
        if each.declared and _shows(each.case.id, at, text):
            sure = True
            print("   it is this failure: the text has all that the case declares of it")
        for line in _reasons(each, at):
            print(f"   {line}")
    if not found:
        print(f"no case fits, of {len(known.cases)}: nothing that one declares, and too few of its words")
    elif not (sure or found[0].likely):
        print("none of them is likely: look at what fits before you run one")


def _shows(case: str, top: Path, text: str) -> bool:
    """Return whether a text shows the case's failure, read as the output of a process that failed."""
    from failure_signature.judging.signature import Sign, Signature, ended
    from gpu_casebook.manifest.case import find, known_images

    try:
        failures = find(top, case, known_images(top)).failures()
    except CasebookError:  # a case that is not in order, or that no single run shows
        return False
    return Signature(*failures.values()).read(ended(1, text)).sign is Sign.SHOWS


def _reasons(match: "Match", top: Path) -> list[str]:
    case = match.case
    unlike = [f"unlike it: {'; '.join(match.unlike)}"] if match.unlike else []
    return [
        f"fits: {'; '.join(match.fits)}",
        *unlike,
        as_command(f"to make sure: read {shown(top / 'cases' / case.id / 'README.md')}, then nox -s case-{case.id}"),
    ]


def _text(words: list[str]) -> str:
    if not words or words == ["-"]:
        return "" if sys.stdin.isatty() else sys.stdin.buffer.read().decode("utf-8", "replace")
    path = Path(words[0])
    return _read(path) if len(words) == 1 and path.is_file() else " ".join(words)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None


@app.command()
@ends_in_one_line
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that is new or empty.")],
    corpus: CorpusOption = None,
) -> None:
    """Write the corpus as a dataset: JSON Lines with a row for each case, a Croissant description, and a card.

    Rows have problem statement, environments with their locks, scripts, patch, expectation, evidence and links. They
    are split by a hash of the upstream project, so that no project is in two splits.
    """
    from casebook_workbench.catalogue.export.dataset import write
    from casebook_workbench.catalogue.export.rows import row

    top = root(corpus)
    rows = [row(top, case) for case in chosen_cases(None, top)]
    for path, count in write(directory, rows):
        of = f", {plural(count, 'case')}" if count is not None else ""
        print(f"wrote {shown(path)}: {size(path.stat().st_size)}{of}")


@app.command()
@ends_in_one_line
def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, an empty one, or an earlier site's.")],
    corpus: CorpusOption = None,
    reports: Annotated[Path | None, typer.Option(help="Where evidence is. Without it: reports/ beside cases/.")] = None,
    address: Annotated[
        str, typer.Option(metavar="URL", help="Where it will be published; the feed and commands then name it.")
    ] = "",
    repository: Annotated[
        str, typer.Option(metavar="URL", help="The repository on the web, for links to files that the site has not.")
    ] = "",
) -> None:
    """Build a static site of all cases from manifests, READMEs and evidence, with a search. Needs no network.

    The search needs a web server, such as `python -m http.server --directory OUT`; all else works from disk too.
    """
    from casebook_workbench.catalogue.site.build import build

    top = root(corpus)
    made = build(top, reports or top / "reports", out, address, repository)
    print(f"wrote {shown(out)}: {plural(made.cases, 'case')}, {plural(made.pages, 'page')}, {size(made.bytes)}")
    print(
        f"took {seconds(made.wrote_s + made.built_s + made.indexed_s)}: {seconds(made.wrote_s)} to write the pages, "
        f"{seconds(made.built_s)} to build them, {seconds(made.indexed_s)} for the search"
    )
