"""`casebook case`: one case."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli import base
from gpu_casebook.cli.base import EPILOG, app, ends_in_one_line, root_with, run_options, shown
from gpu_casebook.errors import ExitStatus, MachineError, UsageError
from gpu_casebook.files import check_writable, os_reason

if TYPE_CHECKING:
    from failure_signature.trials import Verdict
    from gpu_casebook.console import Console


@app.command(name="case", epilog=EPILOG)
@ends_in_one_line
def run_one(
    case: Annotated[str, typer.Argument(help="The case's id: the name of its directory in cases/.")],
    engine: base.EngineOption = None,
    environment: base.EnvironmentOption = None,
    image: base.ImageOption = None,
    over: base.OverOption = None,
    pre: base.PreOption = False,
    trials: base.TrialsOption = None,
    timeout: base.TimeoutOption = None,
    gpu: base.GpuOption = None,
    keep: base.KeepOption = False,
    probes: base.ProbesOption = True,
    at_once: base.AtOnceOption = None,
    reports: base.ReportsOption = None,
    publish: base.PublishOption = False,
    corpus: base.CorpusOption = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="VERDICT", help="Exit with 0 for this verdict, such as not-reproduced, and 15 for others."
        ),
    ] = None,
) -> None:
    """Run one case: does the bug reproduce here, and does the fix hold?

    Writes the evidence and the report, prints the verdict, and exits with the verdict's own status.
    """
    from failure_signature.trials import Verdict
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.manifest.case import find, known_images
    from gpu_casebook.run.pipeline import run_case
    from gpu_casebook.run.plan import Skipped

    if expect and expect not in set(Verdict):
        raise UsageError(f"--expect: there is no verdict {expect!r}; there are: {', '.join(Verdict)}")
    top = root_with(case, corpus)
    place = base.place_of(top, reports, publish=publish)
    check_writable(place)
    out = Console(sys.stdout)
    found = find(top, case, known_images(top))
    options = run_options(
        environment=environment,
        image=image,
        over=tuple(over or ()),
        pre=pre,
        trials=trials,
        timeout=timeout,
        gpu=gpu,
        keep=keep,
        probes=probes,
        at_once=at_once,
    )
    if environment:
        found.environment(environment)
    with choose(engine, top, out.say) as chosen:
        result = run_case(found, options, chosen, out)
    if isinstance(result, Skipped):
        out.say(f"{case}: skipped")
        for reason in result.reasons:
            out.say(f"  {reason}")
        raise typer.Exit(_status(result.verdict, expect, out))
    from gpu_casebook.report.headline import summary
    from gpu_casebook.report.pages import publish as write_pages

    for line in summary(result):
        out.say(line)
    try:
        page = write_pages(place, result, out.say)
    except OSError as error:
        saved = Path(tempfile.mkdtemp(prefix="casebook-")) / "evidence.json"
        result.write(saved)
        raise MachineError(f"{os_reason(error)}; the evidence is in {saved}") from error
    out.say(f"report: {shown(page)}")
    raise typer.Exit(_status(result.verdict, expect, out))


def _status(verdict: "Verdict", expected: str | None, out: "Console") -> int:
    """Return the verdict's own status, or where one is expected whether this is it."""
    if expected is None:
        return ExitStatus.of(verdict)
    out.say(f"{expected} was expected" + ("" if verdict == expected else f", and the verdict is {verdict}"))
    return ExitStatus.CONFIRMED if verdict == expected else ExitStatus.UNEXPECTED
