"""`casebook bundle`, `bundle-run`, `bundle-join`: a case on a GPU host without a network."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gpu_casebook.cli.base import (
    EPILOG,
    GpuOption,
    ProbesOption,
    ReportsOption,
    TimeoutOption,
    TrialsOption,
    app,
    ends_in_one_line,
    root,
    run_options,
    shown,
)
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.text import size


@app.command()
@ends_in_one_line
def bundle(
    case: Annotated[str, typer.Argument(help="The case's id.")],
    environment: Annotated[str | None, typer.Option(help="The environment. Without it: the case's first.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="docker packs the image, venv wheels. Without it: docker if a daemon answers.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Pack neither: the host has this image (docker).")] = None,
    python: Annotated[
        str | None, typer.Option(metavar="X.Y[,X.Y]", help="The host's. Without it: the case's (venv), or this one's.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The archive, or a directory for it. Without it: here.")
    ] = None,
    split: Annotated[str | None, typer.Option(metavar="SIZE", help="Parts of at most this size, such as 56MB.")] = None,
) -> None:
    """Pack a case with its environment and the runner, for a GPU host without a network."""
    from gpu_casebook.bundle import pack, parts
    from gpu_casebook.console import Console
    from gpu_casebook.engines import registry
    from gpu_casebook.manifest.case import find, known_images

    top, out = root(), Console(sys.stdout)
    found = find(top, case, known_images(top))
    name = environment or next(iter(found.manifest.environments))
    spec = found.environment(name)
    part_bytes = parts.size(split) if split else None
    path = output or Path()
    if path.is_dir():
        path /= f"{case}.{name}{pack.SUFFIX}"
    with ExitStack() as opened:
        if image:
            packing, kind = None, registry.kind(engine or registry.capable("has_images"))
            if not kind.has_images:
                raise UsageError(f"--image {image} needs the docker engine; leave out --engine {engine}")
        else:
            packing = opened.enter_context(registry.choose(engine, top, out.say))
            kind = type(packing)
        pythons = _versions(python) or [spec.python if kind.uses_host_python else pack.THIS_PYTHON]
        options = pack.PackOptions(case=found, environment=name, engine=kind.name, image=image, pythons=pythons)
        with out.step(f"packing {case}, environment {name}") as note, _writing(path):
            packed = pack.pack(top, options, packing, path, note)
            files = parts.split(path, part_bytes) if part_bytes else [path]
    for file in files:
        out.say(f"wrote {shown(file)} ({size(file.stat().st_size)})")
    also = f", and Python {packed.python} for the case" if kind.uses_host_python else " and a Docker engine"
    also += f" with the image {image}" if image else ""
    out.say(f"on the host, which needs Python {' or '.join(packed.pythons)}{also}:")
    if part_bytes:
        out.say(f"  python3 {files[-1].name}   # with all these files in one directory")
    else:
        out.say(f"  tar xf {path.name} && {packed.run}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        where = error.filename or path
        raise UsageError(f"{where} can't be written: {error.strerror}; name another with --output") from None


def _versions(text: str | None) -> list[str]:
    if text and not re.fullmatch(r"3\.\d+(,3\.\d+)*", text):
        raise UsageError(f"--python {text}: write a version such as 3.12, or several: 3.11,3.12")
    return list(dict.fromkeys(text.split(","))) if text else []


@app.command(name="bundle-run", epilog=EPILOG)
@ends_in_one_line
def bundle_run(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...|DIRECTORY", help="The bundle: archive, parts, or where they lie.")
    ],
    trials: TrialsOption = None,
    timeout: TimeoutOption = None,
    gpu: GpuOption = None,
    image: Annotated[
        str | None, typer.Option(help="Run in this image of the host's. Without it: in what the bundle says.")
    ] = None,
    probes: ProbesOption = True,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to bring back. Without it: beside the bundle.")
    ] = None,
) -> None:
    """Run a bundle, without a network, and write one file to bring back. Exits with the verdict's own status.

    A host without a runner has the bundle's own: python3 casebook-bundle/run.py, with the same options.
    """
    from gpu_casebook.bundle import there
    from gpu_casebook.guest import starter

    try:
        home = starter.opened(files).resolve()
    except starter.Wrong as error:
        raise CasebookError(str(error)) from None
    if not there.is_its_own(home):
        there.hand_over(home, sys.argv[sys.argv.index("bundle-run") + 1 :], files)
    from gpu_casebook.console import Console

    options = run_options(image=image, trials=trials, timeout=timeout, gpu=gpu, probes=probes)
    out = Console(sys.stdout)
    with _writing(output or home.parent):
        returned, path = there.run(home, options, out, output)
    out.say(f"bring back: {path} ({size(path.stat().st_size)}); then: nox -s bundle-join -- {path.name}")
    raise typer.Exit(returned.verdict.exit_status)


@app.command(name="bundle-join")
@ends_in_one_line
def bundle_join(
    file: Annotated[Path, typer.Argument(help="What bundle-run wrote on the host.")],
    reports: ReportsOption = None,
) -> None:
    """Put evidence from a host without a network into the reports, and render its page and the index again."""
    from gpu_casebook.bundle.document import Returned
    from gpu_casebook.bundle.join import join
    from gpu_casebook.manifest.case import find, known_images

    top = root()
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    returned = Returned.read(file)
    joined = join(returned, find(top, returned.bundle.case, known_images(top)), reports or top / "reports")
    for warning in joined.warnings:
        print(f"{warning} (warning)")
    if joined.page:
        print(f"{returned.verdict}: {returned.bundle.case}, environment {returned.bundle.environment}")
        print(f"report: {shown(joined.page)}")
