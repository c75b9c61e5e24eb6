"""`casebook bisect`: which release introduced a failure, or fixed it. `casebook watch`: do the newest ones have it?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli.base import (
    CaseIds,
    EngineOption,
    EnvironmentOption,
    PublishOption,
    ReportsOption,
    app,
    chosen_cases,
    ends_in_one_line,
    place_of,
    root,
    shown,
)
from gpu_casebook.errors import ExitStatus, UsageError
from gpu_casebook.places import reports_of

if TYPE_CHECKING:
    from casebook_workbench.releases.watch import EnvironmentWatch


@app.command(epilog="Exit status: 0 found; 22 an end is not what it was said to be; the others as everywhere.")
@ends_in_one_line
def bisect(
    case: Annotated[str, typer.Argument(help="The case's id.")],
    package: Annotated[str, typer.Option(help="The package whose releases are tried; the environment pins it.")],
    bad: Annotated[str, typer.Option(metavar="VERSION", help="A release with the failure.")],
    good: Annotated[
        str | None, typer.Option(metavar="VERSION", help="An older release without it: which one introduced it?")
    ] = None,
    fixed_in: Annotated[
        str | None, typer.Option(metavar="VERSION", help="A newer release without it: which one fixed it?")
    ] = None,
    environment: EnvironmentOption = None,
    variant: Annotated[
        str, typer.Option(help="Whose script is run, and whose requirements: repro or fixed.")
    ] = "repro",
    engine: EngineOption = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE==VERSION", help="Hold another package at this version all along."),
    ] = None,
    expect_message: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only this wording is the failure; the case's other wordings are not."),
    ] = None,
    good_message: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="A failure with this message is not the one looked for: call it good."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials that measure the rate at the bad end. Without it: until they do.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(min=0.0001, max=0.2, help="The risk of a wrong answer by quiet runs. Without it: the case's."),
    ] = None,
    pre: Annotated[bool, typer.Option("--pre", help="Try pre-releases too.")] = False,
    resume: Annotated[
        bool | None, typer.Option("--resume/--restart", help="Go on with one that was stopped, or forget it.")
    ] = None,
    reports: ReportsOption = None,
    publish: PublishOption = False,
) -> None:
    """Find the release that introduced a failure (--good, --bad) or fixed it (--bad, --fixed-in).

    Each release gets an environment of its own, and as many trials as the measured rate asks for. Writes
    local/bisect/CASE.PACKAGE.md and .json after every trial, so a search that was stopped goes on with --resume.
    """
    from casebook_workbench.releases.bisect import Stopped, held, planned
    from casebook_workbench.releases.bisect import bisect as search
    from casebook_workbench.releases.page import sureness
    from casebook_workbench.releases.records import Question
    from failure_signature.kinds import Variant
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.manifest.case import find, known_images
    from gpu_casebook.run.options import Options

    if variant not in set(Variant):
        raise UsageError(f"--variant {variant}: write repro or fixed")
    other_end = good or fixed_in
    if not other_end or (good and fixed_in):
        raise UsageError("name one other end: --good VERSION, older than --bad, or --fixed-in VERSION, newer than it")
    top, out = root(), Console(sys.stdout)
    found = find(top, case, known_images(top))
    stopped = Stopped.ASK if resume is None else Stopped.RESUME if resume else Stopped.FORGET
    with choose(engine, top, out.say) as chosen:
        plan = planned(found, Options(environment=environment), chosen)
        question = Question(
            case=found.id,
            package=package,
            environment=plan.environment,
            variant=Variant(variant),
            good=other_end,
            bad=bad,
            others=held(others or ()),
            expect_message=expect_message,
            good_message=good_message,
            trials=trials,
            alpha=alpha or found.manifest.alpha,
            engine=chosen.name,
            digest=found.digest(),
        )
        into = place_of(top, reports, publish=publish)
        record, page = search(plan, question, chosen, out, into, seeks_fix=bool(fixed_in), pre=pre, stopped=stopped)
    out.say(f"{record.question.package}: {record.answer}")
    for line in sureness(record):
        out.say(f"  {line}")
    out.say(f"report: {shown(page)}")


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
    from casebook_workbench.releases.watch import watch as watch_case
    from failure_signature.text import plural
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.report.pages import render

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
