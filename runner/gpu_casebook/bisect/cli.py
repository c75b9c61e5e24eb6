"""`casebook bisect`: which release introduced a failure, or fixed it."""

import sys
from typing import Annotated

import typer

from gpu_casebook.cli.base import (
    EngineOption,
    EnvironmentOption,
    PublishOption,
    ReportsOption,
    app,
    ends_in_one_line,
    place_of,
    root,
    shown,
)
from gpu_casebook.errors import UsageError


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
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.kinds import Variant
    from gpu_casebook.manifest.case import find, known_images
    from gpu_casebook.records.bisection import Question
    from gpu_casebook.releases.bisect import Stopped, held, planned
    from gpu_casebook.releases.bisect import bisect as search
    from gpu_casebook.report.bisection import sureness
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
