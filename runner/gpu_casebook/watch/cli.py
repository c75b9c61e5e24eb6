"""`casebook watch`: do the newest releases still have the failures?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli.base import CaseIds, EngineOption, app, chosen_cases, ends_in_one_line, root, shown
from gpu_casebook.errors import ExitStatus
from gpu_casebook.places import reports_of

if TYPE_CHECKING:
    from gpu_casebook.watch.watcher import EnvironmentWatch


@app.command(epilog=f"Exit status: 0 nothing changed; {ExitStatus.CHANGED} a state changed; the others as everywhere.")
@ends_in_one_line
def watch(
    cases: CaseIds = None,
    environment: Annotated[
        str | None, typer.Option(help="One of the environments. Without it: all that can run here.")
    ] = None,
    engine: EngineOption = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Find the first fixed release of what was fixed since (see bisect).")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run also what is as it was when last looked at.")] = False,
    reports: Annotated[
        Path | None, typer.Option(help="Where the records and the index go. Without it: reports/ in the checkout.")
    ] = None,
) -> None:
    """Try each case with the newest releases of what it pins: does it still fail?

    States: still-reproduces, fixed-since, fails-otherwise, cannot-install. What can't run here is unknown, which is no
    change. Each case's history is in reports/watch/CASE.json, and changes are listed in reports/README.md.
    """
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.report.pages import render
    from gpu_casebook.text import plural
    from gpu_casebook.watch.watcher import watch as watch_case

    out, place = Console(sys.stdout), reports or reports_of(root(), published=True)
    chosen = chosen_cases(cases)
    if environment:
        for case in chosen:
            case.environment(environment)
    changes = 0
    with choose(engine, root(), out.say) as on:
        for case in chosen:
            for found in watch_case(case, on, out, place, environment=environment, search=bisect, again=again):
                out.say(f"{case.id}, {_summary(found)}")
                changes += found.changed
    *_, index = render(place, [])
    out.say(f"{plural(changes, 'change') if changes else 'no changes'}; index: {shown(index)}")
    if changes:
        raise typer.Exit(ExitStatus.CHANGED)


def _summary(watch: "EnvironmentWatch") -> str:
    where, seen = f"environment {watch.environment}", watch.seen
    if seen is None:
        return f"{where}: not run here, so unknown: {watch.unknown}"
    was = f" (was {watch.before.state})" if watch.before and watch.changed else ""
    first = f"; first fixed release: {' or '.join(seen.first_fixed)}" if seen.first_fixed else ""
    broken = "; the fix does not hold" if seen.fix is False else ""
    return f"{where}: {seen.state}{was} with {seen.packages or 'no version'}{first}{broken}: {seen.why}"
