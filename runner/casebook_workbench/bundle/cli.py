"""`casebook bundle`, `bundle-run`, `bundle-join`: cases on a GPU host without a network."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from casebook_workbench.corpus.cli import EPILOG, CaseGlobs, EnvironmentsOption, MaxAgeOption, age
from failure_signature.text import size
from gpu_casebook.cli.base import (
    GpuOption,
    ProbesOption,
    PublishOption,
    ReportsOption,
    TimeoutOption,
    TrialsOption,
    app,
    ends_in_one_line,
    place_of,
    root,
    run_options,
    shown,
)
from gpu_casebook.errors import CasebookError, UsageError


@app.command()
@ends_in_one_line
def bundle(
    cases: CaseGlobs = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Environments of this name, or a pattern. Without it: each case's first."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="docker packs images, venv wheels. Without it: docker if a daemon answers.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Pack neither: the host has this image (docker).")] = None,
    host_has: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Leave out layers that the host has, by the file that it brought back."),
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="X.Y[,X.Y]", help="The host's. Without it: the cases' (venv), or this one's.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The archive, or a directory for it. Without it: here.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Parts of at most this size, such as 48MB for a limit of 64.")
    ] = None,
) -> None:
    """Pack cases with their environments and the runner, for a GPU host without a network."""
    from casebook_workbench.bundle import pack, parts
    from casebook_workbench.bundle.document import Returned, name_of
    from casebook_workbench.corpus.selection import Selection
    from gpu_casebook.console import Console
    from gpu_casebook.engines import registry

    top, out = root(), Console(sys.stdout)
    jobs = pack.chosen(top, Selection(cases=cases, environment=environment))
    part_bytes = parts.size(split) if split else None
    there = {layer for file in host_has or () for each in Returned.read(file).bundle.images for layer in each.layers}
    with ExitStack() as opened:
        if image:
            packing, kind = None, registry.kind(engine or registry.capable("has_images"))
            if not kind.has_images:
                raise UsageError(f"--image {image} needs the docker engine; leave out --engine {engine}")
        else:
            packing = opened.enter_context(registry.choose(engine, top, out.say))
            kind = type(packing)
        options = pack.PackOptions(jobs=jobs, engine=kind.name, image=image, pythons=_versions(python), host_has=there)
        path = output or Path()
        if path.is_dir():
            path /= f"{name_of(jobs)}{pack.SUFFIX}"
        with out.step(f"packing {', '.join(job.name for job in jobs)}") as note, _writing(path):
            packed = pack.pack(top, options, packing, path, note)
            files = parts.split(path, part_bytes) if part_bytes else [path]
    for file in files:
        out.say(f"wrote {shown(file)} ({size(file.stat().st_size)})")
    also = (
        f", and Python {' and '.join(packed.needs)} for the cases" if kind.uses_host_python else " and a Docker engine"
    )
    also += f" with the image {image}" if image else " (or: run.py --engine charliecloud)" if kind.has_images else ""
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
    case: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this case, or a pattern.")] = None,
    environment: EnvironmentsOption = None,
    trials: TrialsOption = None,
    timeout: TimeoutOption = None,
    gpu: GpuOption = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Run the packed images by another engine, such as charliecloud. Without it: as packed."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Run in this image of the host's. Without it: in what the bundle says.")
    ] = None,
    probes: ProbesOption = True,
    max_age: MaxAgeOption = "7d",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to bring back. Without it: beside the bundle.")
    ] = None,
) -> None:
    """Run a bundle, without a network, and write one file to bring back. The same again goes on where a run was ended.

    A host without a runner has the bundle's own: python3 casebook-bundle/run.py, with the same options.
    """
    from casebook_workbench.bundle import there
    from gpu_casebook.guest import starter

    try:
        home = starter.opened(files).resolve()
    except starter.Wrong as error:
        raise CasebookError(str(error)) from None
    named = {str(file) for file in files}
    words = [word for word in sys.argv[sys.argv.index("bundle-run") + 1 :] if word not in named]
    if not there.is_its_own(home):
        there.hand_over(home, words)
    asked = there.Asked(
        options=run_options(image=image, trials=trials, timeout=timeout, gpu=gpu, probes=probes),
        engine=engine,
        cases=case,
        environments=environment,
        max_age_s=age(max_age),
        output=output,
        words=words,
    )
    with _writing(output or home.parent):
        raise typer.Exit(there.run(home, asked, sys.stdout))


@app.command(name="bundle-join")
@ends_in_one_line
def bundle_join(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What bundle-run wrote on the hosts.")],
    reports: ReportsOption = None,
    publish: PublishOption = False,
) -> None:
    """Put evidence from hosts without a network beside that of runs here, and render the pages, the run's too."""
    from casebook_workbench.bundle.document import Returned
    from casebook_workbench.bundle.join import join
    from casebook_workbench.corpus import summary

    top = root()
    brought = list(map(Returned.read, files))
    run, page = join(brought, top, place_of(top, reports, publish=publish), lambda line: print(f"{line} (warning)"))
    for line in summary.lines(run):
        print(line)
    print(f"report: {shown(page)}")
