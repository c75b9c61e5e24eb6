"""What every command shares: the application, how it ends, where the checkout is, and how words become values."""

import errno
import functools
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from gpu_casebook.cli.verbs import VerbGroup
from gpu_casebook.engines.registry import ENGINES
from gpu_casebook.errors import CasebookError, ExitStatus, MachineError, ManifestError, UsageError
from gpu_casebook.files import disk_is_full, os_reason
from gpu_casebook.places import OWN, as_command, reports_of
from gpu_casebook.revision import CHECKOUT, PACKAGED, own_revision
from gpu_casebook.run.options import FLAGS, Options

if TYPE_CHECKING:
    from gpu_casebook.manifest.case import Case

P = ParamSpec("P")
R = TypeVar("R")

EPILOG = """Exit status: 0 confirmed; 10 not-reproduced; 11 wrong-failure; 12 fix-fails; 13 inconclusive; 14 skipped;
15 not the verdict that --expect names; 2 no such case, environment, engine or option; 3 a manifest or lock is wrong;
4 the engine is not there or went away; 5 an image or environment could not be built; 6 the machine lacks a GPU, driver
or disk; 130 interrupted."""

app = typer.Typer(
    name="casebook",
    help="Casebook: documented GPU and training-stack failures that anyone can run.",
    cls=VerbGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
)


def _version(wanted: bool) -> None:  # noqa: FBT001 as Typer calls it
    if wanted:
        print(f"casebook {own_revision()}")
        raise typer.Exit


@app.callback()
def _casebook(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

CaseIds = Annotated[list[str] | None, typer.Argument(metavar="[CASE]...", help="Cases by id; all if none is named.")]
EngineOption = Annotated[
    str | None,
    typer.Option(help=f"{' or '.join(ENGINES)}, or a plug-in's. Without it: the first that answers."),
]
ReportsOption = Annotated[
    Path | None,
    typer.Option(
        help="Where evidence and reports go. Without it: local/ beside cases/, which git ignores, or the user's data "
        "directory where the installed corpus is run."
    ),
]
PublishOption = Annotated[
    bool, typer.Option("--publish", help="Write to reports/, the evidence that belongs to the corpus, instead.")
]
CorpusOption = Annotated[
    Path | None,
    typer.Option(
        "--corpus",
        metavar="DIR",
        envvar="CASEBOOK_CORPUS",
        help="A corpus of your own beside the public one: a directory with cases/, and images/ if it has some.",
    ),
]


def _declared(name: str) -> Any:
    flag = FLAGS[name]
    return typer.Option(flag.name, help=flag.help, metavar=flag.metavar, min=flag.min)


EnvironmentOption = Annotated[str | None, _declared("environment")]
ImageOption = Annotated[str | None, _declared("image")]
OverOption = Annotated[list[str] | None, _declared("over")]
PreOption = Annotated[bool, _declared("pre")]
TrialsOption = Annotated[int | None, _declared("trials")]
TimeoutOption = Annotated[str | None, _declared("timeout_s")]
GpuOption = Annotated[str | None, _declared("gpus")]
AtOnceOption = Annotated[int | None, _declared("at_once")]
KeepOption = Annotated[bool, _declared("keep")]
ProbesOption = Annotated[bool, _declared("probes")]


def run_options(*, timeout: str | None = None, gpu: str | None = None, **given: Any) -> Options:
    """Return the options of a run; `timeout` and `gpu` are as the command line has them. Raises UsageError."""
    return Options(
        timeout_s=seconds(timeout) if timeout else None,
        gpus=indices(gpu) if gpu else None,
        **given,
    )


def main() -> NoReturn:
    """Run the command line and exit. SIGTERM, as CI sends it, and a lost terminal end as cleanly as Ctrl-C."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: the next file to be opened would take its place
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: a terminal may lack a title's letters
    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    app()
    sys.exit()


def _interrupt(*_: object) -> NoReturn:
    for number in _ENDINGS:
        signal.signal(number, _is_ending)
    raise KeyboardInterrupt


def _is_ending(*_: object) -> None:
    """Another signal must not stop what the first one began: the removal of what runs."""
    with suppress(OSError):
        os.write(2, b"casebook: ending what still runs; this takes seconds\n")


def ends_in_one_line(command: Callable[P, R]) -> Callable[P, R]:
    """Turn what may end a command into one clear line on stderr and an exit status."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except CasebookError as error:
            _end(str(error), error.exit_status, listed=isinstance(error, ManifestError))
        except KeyboardInterrupt:
            _end("interrupted; nothing is left running", ExitStatus.INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read the output has seen enough
            hint = "; free some and run again" if disk_is_full(error) else ""
            _end(f"{os_reason(error)}{hint}", MachineError.exit_status)

    return wrapped


def _end(text: str, status: int, *, listed: bool = False) -> NoReturn:
    with suppress(OSError):  # the terminal may be gone
        print(as_command(text if listed else f"casebook: {text}"), file=sys.stderr)
    raise typer.Exit(status)


def root(corpus: Path | None = None) -> Path:
    """Return this corpus, or else the checkout: the nearest directory from here upwards that is one.

    Outside of a checkout: the corpus that the package brings. Raises UsageError.
    """
    if corpus is not None:
        if not (corpus / "cases").is_dir():
            raise UsageError(f"--corpus {corpus}: no cases/ in there; name the directory that has it, or make it")
        return corpus.resolve()
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory is gone; run this in a checkout of Casebook") from None
    for directory in (here, *here.parents, CHECKOUT, PACKAGED):
        if (directory / "cases").is_dir() and (directory / "images").is_dir():
            return directory
    raise UsageError("no cases/ and images/ from here upwards; run this in a checkout of Casebook")


def root_with(case: str, corpus: Path | None) -> Path:
    """Return the corpus that has this case: the one that is named, or else the public one. Raises UsageError."""
    top = root(corpus)
    return top if corpus is None or (top / "cases" / case).is_dir() else root()


def own_root(corpus: Path | None = None) -> Path:
    """Return the corpus, to write to. Raises UsageError where it is the one that the package brings."""
    if (top := root(corpus)) == PACKAGED:
        raise UsageError("the installed corpus is not written to; name your own, a directory with cases/: --corpus DIR")
    return top


def place_of(top: Path, reports: Path | None, *, publish: bool) -> Path:
    """Return where evidence and pages of the corpus at `top` go, by these options. Raises UsageError."""
    if reports is not None:
        if publish:
            raise UsageError(f"--publish writes to reports/, and --reports to {reports}; leave one of them out")
        return reports
    if publish and top == PACKAGED:
        raise UsageError("--publish: the installed corpus is not written to; run this in a checkout of Casebook")
    place = reports_of(top, published=publish)
    if place.name == OWN and not (place / ".gitignore").exists():
        with suppress(OSError):  # whoever writes there next says so
            place.mkdir(exist_ok=True)
            (place / ".gitignore").write_text("*\n", encoding="utf-8")
    return place


def seconds(text: str) -> float:
    """Return the seconds of a duration as case.yaml has it ("90s", "2m") or of a number. Raises UsageError."""
    from pydantic import TypeAdapter, ValidationError

    from failure_signature.expectation import Seconds

    try:
        return TypeAdapter(Seconds).validate_python(float(text) if re.fullmatch(r"[0-9.]+", text) else text)
    except (ValidationError, ValueError):
        raise UsageError(f"--timeout {text}: write 90s, 2m, 1h30m or a number of seconds, at most a day") from None


def indices(text: str) -> list[int]:
    """Return the GPU indices of "0" or "0,1". Raises UsageError."""
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--gpu {text}: write an index such as 0, or several: 0,1")
    return [int(part) for part in text.split(",")]


def shown(path: Path) -> str:
    """Return a path relative to the current directory if it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def chosen_cases(ids: Sequence[str] | None, corpus: Path | None = None) -> "list[Case]":
    from gpu_casebook.manifest.case import discover, find, known_images

    top = root(corpus)
    known = known_images(top)
    return [find(top, case, known) for case in ids or discover(top)]
