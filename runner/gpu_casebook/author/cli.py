"""Writing a case: new, and check as its reviewer."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import CaseIds, app, ends_in_one_line, root, seconds, shown
from gpu_casebook.errors import ManifestError, Severity
from gpu_casebook.text import plural


@app.command()
@ends_in_one_line
def new(
    case: Annotated[str, typer.Argument(help="The new case's id: the name of its directory in cases/.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="SCRIPT", help="A script that shows the failure.")
    ] = None,
    issue: Annotated[
        str | None, typer.Option(help="Link to the report: an issue, pull request or discussion on GitHub.")
    ] = None,
    buggy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME==VERSION", help="A release case: the version that has the bug. Needs --fixed."),
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option(metavar="NAME==VERSION", help="A release case: the version that has it no more.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Lock the requirements and try the script there: docker or venv. Without it: as it is here."),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--trial/--no-trial", help="Whether to run the script once and propose what it showed.")
    ] = True,
    python: Annotated[
        Path | None,
        typer.Option(help="The Python that has the script's packages. Without it: the active environment's."),
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="For the trial: 90s, 2m.")] = "120s",
) -> None:
    """Begin a case: write its directory, with all that a script and one trial of it tell, and marked blanks.

    Requirements come from the script's imports, pinned to what is installed where you run it.
    """
    from gpu_casebook.author.check import check_all
    from gpu_casebook.author.new import NewCase, new
    from gpu_casebook.console import Console

    out, top = Console(sys.stdout), root()
    options = NewCase(
        id=case,
        source=source,
        issue=issue,
        engine=engine,
        trial=trial,
        python=python,
        buggy=buggy or (),
        fixed=fixed or (),
        timeout_s=seconds(timeout),
    )
    directory, notes = new(top, options, out.say)
    out.say(f"wrote {shown(directory)}/: case.yaml, repro.py, fixed.py, README.md")
    for note in notes:
        out.say(f"  {note}")
    errors = [each for each in check_all(top, [case]) if each.severity is Severity.ERROR and "/locks/" not in each.path]
    if errors:
        out.say(f"{len(errors)} left to fill in or confirm (nox -s check -- --static {case} names them all), first:")
        out.say(f"  {errors[0]}")
    lock = "" if (directory / "locks").is_dir() else f"nox -s lock -- {case} && "
    out.say(f"then: {lock}nox -s check -- {case}")


@app.command()
@ends_in_one_line
def check(
    cases: CaseIds = None,
    static: Annotated[bool, typer.Option("--static", help="Run nothing: only what the files tell.")] = False,
    environment: Annotated[
        str | None,
        typer.Option(help="Try the cases in this environment. Without it: the first whose hardware is here."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Try the cases with docker or venv.")] = None,
) -> None:
    """Check manifests, scripts, script headers and locks: every mistake, with file and line.

    Cases that are named are reviewed: tried, tried with repro.py and fixed.py exchanged, and looked at as a maintainer
    would. Nothing is written.
    """
    if cases and not static:
        _review(cases, environment, engine)
    else:
        _check(cases or [])


def _check(cases: list[str]) -> None:
    from gpu_casebook.author.check import check_all
    from gpu_casebook.manifest.case import discover

    problems = check_all(root(), cases)
    errors = [each for each in problems if each.severity is Severity.ERROR]
    for problem in problems:
        if problem.severity is not Severity.ERROR:
            print(problem)
    if errors:
        raise ManifestError(errors)
    print(f"{plural(len(cases) or len(discover(root())), 'case')} checked, no problems")


def _review(cases: list[str], environment: str | None, engine: str | None) -> None:
    from gpu_casebook.author.review import review
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.manifest.case import manifest_path
    from gpu_casebook.run.options import Options

    top, out = root(), Console(sys.stdout)
    for name in cases:
        manifest_path(top, name)
    wrong = 0
    with choose(engine, top, out.say) as chosen:
        for name in cases:
            found = review(top, name, Options(environment=environment, probes=False), chosen, out)
            for line in (*found.problems, *found.done):
                print(line)
            counts = ", ".join(plural(found.count(severity), severity) for severity in Severity)
            print(f"{name}: {counts}")
            wrong += found.count(Severity.ERROR)
    if wrong:
        raise typer.Exit(ManifestError.exit_status)
