"""`casebook judge`: does this command show the failure of a case?"""

import sys
from typing import Annotated, Literal

import typer

from gpu_casebook.cli.base import CorpusOption, TimeoutOption, app, ends_in_one_line, root_with, seconds
from gpu_casebook.errors import CasebookError

EPILOG = """Exit status: 0 the command showed the failure; 10 it ran to its end without it; 11 it failed in another way;
13 the machine was to blame, or one run could not tell. With --bisect introduced: 1 shows it, 0 does not, 125 neither;
with --bisect fixed: 0 shows it, 1 does not, 125 neither; 255 the command could not be judged, which ends the bisection.
Otherwise: 2 no such case, environment or command; 3 a manifest is wrong; 130 interrupted."""
ABORT = 255
"""What `git bisect run` takes for an order to stop, and not for a bad revision."""


@app.command(epilog=EPILOG)
@ends_in_one_line
def judge(
    case: Annotated[str, typer.Argument(help="The case's id.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, here and as it is.")],
    environment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only the failure as it shows in this environment. Without it: in any."),
    ] = None,
    timeout: TimeoutOption = None,
    runs: Annotated[
        int, typer.Option(min=1, help="Run it again, so often at most, until the failure shows: for one that is rare.")
    ] = 1,
    bisect: Annotated[
        Literal["introduced", "fixed"] | None,
        typer.Option(metavar="introduced|fixed", help="Exit as `git bisect run` wants it, for that change."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Leave out what the command prints.")] = False,
    corpus: CorpusOption = None,
) -> None:
    """Run a command once and judge it against what the case declares of its failure.

    casebook judge rwkv6-backward -- python reduced.py
    """
    from casebook_workbench.judge.run import exit_status, judged
    from failure_signature.judging.signature import Sign
    from gpu_casebook.manifest.case import find, known_images

    try:
        top = root_with(case, corpus)
        found = find(top, case, known_images(top))
        timeout_s = seconds(timeout) if timeout else found.manifest.timeout
        sign = Sign.UNKNOWN
        while runs and sign is not Sign.SHOWS:
            sign, lines = judged(found, command, environment or (), timeout_s, echo=not quiet)
            for line in lines:
                print(f"casebook: {line}", file=sys.stderr)
            runs -= 1
    except CasebookError as error:
        if bisect is None:
            raise
        print(f"casebook: {error}", file=sys.stderr)
        raise typer.Exit(ABORT) from None
    raise typer.Exit(exit_status(sign, bisect))
