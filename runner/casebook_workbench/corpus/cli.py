"""`casebook corpus`: many cases."""

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from failure_signature.kinds import Failure, Grade
from failure_signature.text import duration
from gpu_casebook.cli.base import (
    AtOnceOption,
    CorpusOption,
    EngineOption,
    ImageOption,
    ProbesOption,
    PublishOption,
    ReportsOption,
    TimeoutOption,
    TrialsOption,
    app,
    ends_in_one_line,
    indices,
    place_of,
    root,
    run_options,
)
from gpu_casebook.errors import UsageError

EPILOG = """Exit status: 0 all that ran are confirmed; 20 some are not confirmed; 21 none of that, but something broke
or was not run; 14 nothing could run here; 2 no such case, kind, revision, run or option; 4 the engine is not there or
went away; 6 the machine lacks disk or a GPU; 130 interrupted. After 4, 6 and 130 a run goes on with --resume."""

CaseGlobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CASE]...", help="Cases by id, or patterns such as 'rwkv*'; all if none is named."),
]
FailureOption = Annotated[
    list[Failure] | None, typer.Option(metavar="KIND", help="Only this kind of failure, such as hang.")
]
ProjectOption = Annotated[
    list[str] | None, typer.Option(metavar="OWNER/NAME", help="Only this upstream project, or a pattern.")
]
EnvironmentsOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only environments of this name, or a pattern.")
]
GradeOption = Annotated[list[Grade] | None, typer.Option(help="hardware or simulated.")]
ChangedOption = Annotated[
    str | None,
    typer.Option(
        metavar="REV",
        help="Only cases that changed since this git revision: themselves or their image; "
        "all where what judges them changed.",
    ),
]
MaxAgeOption = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Reuse evidence that would be the same again and is younger than this: 12h, 7d; 0 runs all again.",
    ),
]

_WITH_RESUME = {"cases", "resume", "reports", "publish", "jobs", "gpu", "fleet", "fail_fast", "corpus"}


@app.command(name="corpus", epilog=EPILOG)
@ends_in_one_line
def run_many(
    context: typer.Context,
    cases: CaseGlobs = None,
    failure: FailureOption = None,
    project: ProjectOption = None,
    environment: EnvironmentsOption = None,
    grade: GradeOption = None,
    changed_since: ChangedOption = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Cases at once. Without it: one for each core.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="N[,N]", help="Use only these GPUs, by index. Without it: all.")
    ] = None,
    engine: EngineOption = None,
    image: ImageOption = None,
    trials: TrialsOption = None,
    timeout: TimeoutOption = None,
    probes: ProbesOption = True,
    at_once: AtOnceOption = None,
    max_age: MaxAgeOption = "7d",
    reports: ReportsOption = None,
    publish: PublishOption = False,
    corpus: CorpusOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a run that ended early: `--resume RUN-ID`, or the newest without one."
        ),
    ] = False,
    fleet: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: ray://HOST:PORT, or `local`.")
    ] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Start nothing more after one is not confirmed.")
    ] = False,
) -> None:
    """Run many cases, each in every environment that can run here.

    What was finished is on disk at once. A run that was interrupted or killed goes on with --resume.
    """
    from casebook_workbench.corpus import run
    from casebook_workbench.corpus.begin import Request
    from casebook_workbench.corpus.model import Settings
    from casebook_workbench.corpus.selection import Selection

    top = root(corpus)
    selection = Selection(
        cases=cases, failure=failure, project=project, environment=environment, grade=grade, changed_since=changed_since
    )
    settings = Settings(
        root=str(top),
        reports=str(place_of(top, reports, publish=publish).resolve()),
        engine=engine,
        options=run_options(image=image, trials=trials, timeout=timeout, probes=probes, at_once=at_once),
    )
    request = Request(
        settings=settings,
        selection=selection,
        max_age_s=age(max_age),
        gpus=indices(gpu) if gpu else None,
        jobs=jobs,
        fleet=fleet,
        fail_fast=fail_fast,
        command=shlex.join(["casebook", *sys.argv[1:]]),
    )
    raise typer.Exit(
        run.resume(request, _run_id(context, cases), sys.stdout) if resume else run.start(request, sys.stdout)
    )


def _run_id(context: typer.Context, named: Sequence[str] | None) -> str | None:
    """Return the run to resume. Raises UsageError for options that contradict its record."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in _WITH_RESUME:
            raise UsageError(f"--{name.replace('_', '-')}: with --resume the run's record says that; leave it out")
    if len(named or ()) > 1:
        raise UsageError(f"--resume {' '.join(named or ())}: name one run, or none for the newest")
    return next(iter(named or ()), None)


def age(text: str) -> float:
    """Return the seconds of "12h", "7d", "1d12h" or 0. Raises UsageError."""
    try:
        return 0.0 if text == "0" else duration(text)
    except ValueError:
        raise UsageError(f"--max-age {text}: write 12h, 7d, or 0 to run all again") from None
