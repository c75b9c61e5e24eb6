"""Every command and every option, once. The noxfile calls this."""

import errno
import functools
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, ParamSpec, TypeVar

import typer

from runner.errors import INTERRUPTED, CasebookError, MachineError, ManifestError, UsageError

if TYPE_CHECKING:
    from runner.case import Case
    from runner.images import ImageUse

P = ParamSpec("P")
R = TypeVar("R")

EPILOG = """Exit status: 0 confirmed; 10 not-reproduced; 11 wrong-failure; 12 fix-fails; 13 inconclusive; 14 skipped;
2 no such case, environment, engine or option; 3 a manifest or lock is wrong; 4 the engine is not there or went away;
5 an image or environment could not be built; 6 the machine lacks a GPU, driver or disk; 130 interrupted."""

app = typer.Typer(
    name="casebook",
    help="Casebook: documented GPU and training-stack failures that anyone can run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
)

CaseIds = Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="Cases by id; all if none is named.")]


def main() -> NoReturn:
    """Run the command line and exit. SIGTERM, as CI sends it, ends as cleanly as Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    app()
    sys.exit()


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def ends_in_one_line(command: Callable[P, R]) -> Callable[P, R]:
    """Turn what may end a command into one clear line on stderr and an exit status."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except CasebookError as error:
            _end(str(error), error.exit_status, listed=isinstance(error, ManifestError))
        except KeyboardInterrupt:
            _end("interrupted; nothing is left running", INTERRUPTED)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            _end(f"no space left on {error.filename or 'the disk'}; free some and run again", MachineError.exit_status)

    return wrapped


def _end(text: str, status: int, *, listed: bool = False) -> NoReturn:
    print(text if listed else f"casebook: {text}", file=sys.stderr)
    raise typer.Exit(status)


def root() -> Path:
    """The checkout: the nearest directory from here upwards that has cases/ in it."""
    here = Path.cwd()
    for directory in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (directory / "cases").is_dir() and (directory / "images").is_dir():
            return directory
    raise UsageError("no cases/ and images/ from here upwards; run this in a checkout of Casebook")


def seconds(text: str) -> float:
    """Durations as case.yaml has them: "90s", "2m", or a number of seconds. Raises UsageError."""
    from pydantic import TypeAdapter, ValidationError

    from runner.manifest import Seconds

    try:
        return TypeAdapter(Seconds).validate_python(float(text) if re.fullmatch(r"[0-9.]+", text) else text)
    except (ValidationError, ValueError):
        raise UsageError(f"--timeout {text}: write 90s, 2m, 1h30m or a number of seconds, at most a day") from None


def indices(text: str) -> list[int]:
    """GPU indices: "0" or "0,1". Raises UsageError."""
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--gpu {text}: write an index such as 0, or several: 0,1")
    return [int(part) for part in text.split(",")]


@app.command(name="case", epilog=EPILOG)
@ends_in_one_line
def run_one(
    case: Annotated[str, typer.Argument(help="The case's id: the name of its directory in cases/.")],
    engine: Annotated[
        str | None, typer.Option(help="docker or venv. Without it: docker if a daemon answers, otherwise venv.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="One of the case's environments. Without it: the first whose hardware is here.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Run in this image as it stands (docker). What differs from the lock is listed."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of each variant. Without it: as the case says.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For one trial: 90s, 2m. Without it: as the case says.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="N[,N]", help="Which GPUs, by index. Without it: the first.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave what the trials ran in, and say where it is.")] = False,
    probes: Annotated[
        bool, typer.Option("--probes/--no-probes", help="Whether to look at the failure with instruments afterwards.")
    ] = True,
    zygote: Annotated[
        bool, typer.Option("--zygote", help="Fork trials from a process that has done the script's imports (venv).")
    ] = False,
    reports: Annotated[
        Path | None, typer.Option(help="Where evidence and reports go. Without it: reports/ in the checkout.")
    ] = None,
) -> None:
    """Run one case: does the bug reproduce here, and does the fix hold?

    Writes the evidence and the report, prints the verdict, and exits with the verdict's own status.
    """
    from runner.case import find, known_images
    from runner.console import console
    from runner.engines.choose import choose
    from runner.plan import Options, Skipped
    from runner.report import publish, summary
    from runner.run import run_case

    top = root()
    out = console(sys.stdout)
    found = find(top, case, known_images(top))
    options = Options(
        environment=environment,
        image=image,
        trials=trials,
        timeout_s=seconds(timeout) if timeout else None,
        gpus=indices(gpu) if gpu else None,
        keep=keep,
        probes=probes,
        zygote=zygote,
    )
    if environment:
        found.environment(environment)
    with choose(engine, top, out.say) as chosen:
        for line in chosen.sweep():
            out.say(f"left by a run that was killed: {line}")
        result = run_case(found, options, chosen, out)
    if isinstance(result, Skipped):
        out.say(f"{case}: skipped")
        for reason in result.reasons:
            out.say(f"  {reason}")
        raise typer.Exit(result.verdict.exit_status)
    for line in summary(result):
        out.say(line)
    page = publish(reports or top / "reports", result)
    out.say(f"report: {shown(page)}")
    raise typer.Exit(result.verdict.exit_status)


def shown(path: Path) -> str:
    """A path as short as it can be from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@app.command()
@ends_in_one_line
def check(cases: CaseIds = None) -> None:
    """Check manifests, scripts, script headers and locks: every mistake, with file and line."""
    from runner.check import check_all

    top = root()
    outcome = check_all(top, cases or [])
    for warning in outcome.warnings:
        print(f"{warning} (warning)")
    if outcome.problems:
        raise ManifestError(outcome.problems)
    print(f"{outcome.checked} case{'s' * (outcome.checked != 1)} checked, no problems")


@app.command()
@ends_in_one_line
def lock(
    cases: CaseIds = None,
) -> None:
    """Write the locks: every environment's packages with hashes, from the package index."""
    from runner.console import console
    from runner.environment import write_locks

    out = console(sys.stdout)
    for found in _cases(cases):
        with out.step(f"locking {found.id}") as note:
            for path in write_locks(found, note):
                out.say(f"wrote {shown(path)}")


def _cases(ids: Sequence[str] | None) -> "list[Case]":
    from runner.case import discover, find, known_images

    top = root()
    known = known_images(top)
    return [find(top, case, known) for case in ids or discover(top)]


@app.command()
@ends_in_one_line
def images(
    cases: CaseIds = None,
    usage: Annotated[bool, typer.Option("--usage", help="Build nothing, only show what is there.")] = False,
    remove_unused: Annotated[
        bool, typer.Option("--remove-unused", help="Build nothing; remove the images that no case uses any more.")
    ] = False,
) -> None:
    """Build the images of all environments (docker), and show each one's size, what it shares, and what uses it."""
    from runner import images as builder
    from runner.console import console
    from runner.engines.docker_client import connect
    from runner.plan import recipes

    top, out, client = root(), console(sys.stdout), connect()
    if remove_unused:
        for line in builder.remove_unused(client, top, {each.id: recipes(each) for each in _cases(None)}, out.say):
            out.say(f"removed {line}")
    elif not usage:
        for each in _cases(cases):
            with out.step(f"images of {each.id}") as note:
                builder.build_all(client, top, recipes(each), note)
    _show_usage(builder.usage(client, top, {each.id: recipes(each) for each in _cases(None)}), out.say)


@app.command(name="refresh-bases")
@ends_in_one_line
def refresh_bases() -> None:
    """Pin the base images to what their registry has now, in images/bases.toml."""
    from runner.console import console
    from runner.images import refresh_bases as refresh

    out = console(sys.stdout)
    out.say(f"pinned {refresh(root(), out.say).reference}")


def _show_usage(uses: "Sequence[ImageUse]", say: Callable[[str], None]) -> None:
    for use in uses:
        size, shared = (f"{count / 1e9:.2f} GB" for count in (use.size_bytes, use.shared_bytes))
        say(f"{use.name}  {size}, {shared} of it shared; {', '.join(use.cases) or 'no case uses it'}")


@app.command(name="list")
@ends_in_one_line
def list_cases() -> None:
    """List the cases: id, kind of failure, environments, title."""
    rows = [
        (found.id, found.manifest.failure.value, ", ".join(found.manifest.environments), found.manifest.title)
        for found in _cases(None)
    ]
    widths = [max(map(len, column), default=0) for column in zip(*rows, strict=True)]
    for *fields, title in rows:
        print(*(field.ljust(width) for field, width in zip(fields, widths, strict=False)), title, sep="  ")


@app.command()
@ends_in_one_line
def schema() -> None:
    """Write cases/case.schema.json, from which editors complete and check case.yaml."""
    from runner.case import write_schema

    print(f"wrote {shown(write_schema(root()))}")


@app.command()
@ends_in_one_line
def report(
    reports: Annotated[Path | None, typer.Option(help="Where the evidence is. Without it: reports/.")] = None,
) -> None:
    """Render every report again from the evidence, with nothing run."""
    from runner.report import render_all

    for path in render_all(reports or root() / "reports"):
        print(f"wrote {shown(path)}")


@app.command()
@ends_in_one_line
def clean() -> None:
    """Remove what runs that were killed left behind: containers, volumes, scratch directories.

    GPUs that were set aside after a fault are taken back.
    """
    from runner import aside
    from runner.engines.choose import reachable

    for line in aside.take_back():
        print(f"taken back: {line}")
    removed = [line for engine in reachable(root()) for line in engine.sweep()]
    for line in removed:
        print(f"removed {line}")
    if not removed:
        print("nothing to remove")
