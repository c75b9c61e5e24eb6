"""`casebook match`: which known case is a failure?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli.base import CorpusOption, app, ends_in_one_line, root, root_with, shown
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.places import as_command

if TYPE_CHECKING:
    from gpu_casebook.match.rank import Match

SHOWN = 3


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
    from gpu_casebook.match.known import read_all
    from gpu_casebook.match.rank import rank

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
    from gpu_casebook.judging.signature import Sign, Signature, ended
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
        if sys.stdin.isatty():
            raise UsageError("nothing to look for; give a log's file or words, or pipe a log in")
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    path = Path(words[0])
    return _read(path) if len(words) == 1 and path.is_file() else " ".join(words)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
