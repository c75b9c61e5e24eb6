"""What keeps a checkout in order: lock, images, refresh-bases, schema, report, clean."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli.base import CaseIds, CorpusOption, app, chosen_cases, ends_in_one_line, own_root, root, shown
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.places import reports_of
from gpu_casebook.text import size

_NAMED = 3
"""Cases that a line names."""

if TYPE_CHECKING:
    from gpu_casebook.daemon.client import DockerClient
    from gpu_casebook.images.usage import Found, ImageUse
    from gpu_casebook.manifest.case import Case


@app.command()
@ends_in_one_line
def lock(
    cases: CaseIds = None,
    corpus: CorpusOption = None,
) -> None:
    """Write the locks: every environment's packages with hashes, from the package index."""
    from gpu_casebook.console import Console
    from gpu_casebook.packages.resolve import remove_stale, write_locks

    out = Console(sys.stdout)
    for found in chosen_cases(cases, own_root(corpus)):
        with out.step(f"locking {found.id}") as note:
            for path in write_locks(found, note, out.say):
                out.say(f"wrote {shown(path)}")
        for path in remove_stale(found):
            out.say(f"removed {shown(path)}, which belongs to no environment")


@app.command()
@ends_in_one_line
def images(
    cases: CaseIds = None,
    usage: Annotated[bool, typer.Option("--usage", help="Build nothing, only show what is there.")] = False,
    remove_unused: Annotated[
        bool, typer.Option("--remove-unused", help="Build nothing; remove the images that no case uses any more.")
    ] = False,
    push: Annotated[
        str | None, typer.Option(metavar="REGISTRY", help="Push them there too, such as to registry.example/OWNER.")
    ] = None,
    pull: Annotated[
        str | None,
        typer.Option(metavar="REGISTRY", help="Pull what is not there; runs do if CASEBOOK_REGISTRY names it."),
    ] = None,
    name_of: Annotated[
        str | None,
        typer.Option(
            metavar="ENVIRONMENT",
            help="Build only the image of this environment of one case, of its first if it is empty; print its name.",
        ),
    ] = None,
) -> None:
    """Build the images of all environments. Shows each one's size and users, and what each case adds."""
    from gpu_casebook.console import Console
    from gpu_casebook.daemon.podman import connect_any
    from gpu_casebook.daemon.registry import SILENCE_S
    from gpu_casebook.images import build as builder
    from gpu_casebook.images import usage as uses
    from gpu_casebook.run.plan import recipes

    top, client = root(), connect_any(SILENCE_S)
    if name_of is not None:
        print(_image_of(client, top, chosen_cases(cases), name_of))
        return
    out = Console(sys.stdout)
    if remove_unused:
        for line in uses.remove_unused(client, top, {each.id: recipes(each) for each in chosen_cases(None)}, out.say):
            out.say(f"removed {line}")
    elif not usage:
        for each in chosen_cases(cases):
            with out.step(f"images of {each.id}") as note:
                builder.build_all(client, top, recipes(each), note, pull)
                names = builder.push_all(client, top, recipes(each), push, note) if push else ()
            for name in names:
                out.say(f"pushed {name}")
    wanted = {each.id: recipes(each) for each in chosen_cases(None)}
    _show_usage(uses.usage(client, top, wanted), out.say)
    _show_shares(*uses.layers(client, top, wanted), out.say)


def _image_of(client: "DockerClient", top: Path, cases: "Sequence[Case]", environment: str) -> str:
    from gpu_casebook.console import Console
    from gpu_casebook.images import build as builder
    from gpu_casebook.kinds import Variant
    from gpu_casebook.run.plan import recipe

    if len(cases) != 1:
        raise UsageError(f"--name-of: name one case, not {len(cases)}")
    wanted = recipe(cases[0], environment or next(iter(cases[0].manifest.environments)), Variant.REPRO)
    with Console(sys.stderr).step(f"image of {cases[0].id}") as note:
        return builder.ensure(client, top, wanted, note).name


@app.command(name="refresh-bases")
@ends_in_one_line
def refresh_bases() -> None:
    """Pin the base images to what their registry has now, in images/bases.toml."""
    from gpu_casebook.console import Console
    from gpu_casebook.images.bases import refresh

    out = Console(sys.stdout)
    out.say(f"pinned {refresh(own_root() / 'images', out.say).reference}")


def _show_usage(uses: "Sequence[ImageUse]", say: Callable[[str], None]) -> None:
    for use in uses:
        more = f" and {len(use.cases) - _NAMED} more" if len(use.cases) > _NAMED else ""
        users = f"{', '.join(use.cases[:_NAMED])}{more}" if use.cases else "no case uses it"
        say(f"{use.name}  {size(use.size_bytes)}, {size(use.shared_bytes)} of it shared; {users}")


def _show_shares(found: "Found", absent: Mapping[str, int], say: Callable[[str], None]) -> None:
    from gpu_casebook.images.usage import disk, shares

    width = max(map(len, found), default=0)
    for use in shares(found, absent):
        missing = f", {use.absent} not built" if use.absent else ""
        sizes = f"{size(use.own_bytes)} of its own, {size(use.shared_bytes)} shared"
        say(f"{use.case.ljust(width)}  {sizes}; images: {len(use.images)}{missing}")
    whole = disk(found)
    say(
        f"{whole.cases} cases on {whole.images} images: {size(whole.bytes)}, "
        f"against {size(whole.unshared_bytes)} if each case had its own"
    )


@app.command()
@ends_in_one_line
def schema(corpus: CorpusOption = None) -> None:
    """Write cases/case.schema.json, from which editors complete and check case.yaml."""
    from gpu_casebook.manifest.schema import write_schema

    print(f"wrote {shown(write_schema(own_root(corpus)))}")


@app.command()
@ends_in_one_line
def report(
    reports: Annotated[Path | None, typer.Option(help="Where the evidence is. Without it: reports/.")] = None,
) -> None:
    """Render every report again from the evidence, with nothing run.

    Evidence that drifted goes where there is later, exact evidence of the same case, environment, verdict and card.
    """
    from gpu_casebook.report.rebuild import remove_overtaken, render_all

    unread, top = list[str](), reports or reports_of(root(), published=True)
    for path in remove_overtaken(top):
        print(f"removed {shown(path)}: later evidence of the same is exact")
    for path in render_all(top, unread.append):
        print(f"wrote {shown(path)}")
    if unread:
        raise CasebookError("\n".join(unread))


@app.command()
@ends_in_one_line
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    unused: Annotated[
        bool,
        typer.Option(
            "--unused", help="Virtual environments that no case here uses too, and packages that are in none then."
        ),
    ] = False,
) -> None:
    """Remove what runs that were killed left behind: containers, volumes, scratch directories.

    GPUs that were set aside after a fault are taken back. Images have a command of their own: images --remove-unused.
    """
    from gpu_casebook.devices import hardware
    from gpu_casebook.engines.registry import reachable
    from gpu_casebook.run.plan import recipes

    for line in hardware.take_back(dry_run=dry_run):
        print(f"{'would be ' * dry_run}taken back: {line}")
    wanted = [recipe for case in chosen_cases(None) for recipe in recipes(case)] if unused else []
    lines = list[str]()
    for engine in reachable(root()):
        lines += engine.sweep(dry_run=dry_run)
        lines += engine.discard_unused(wanted, dry_run=dry_run) if unused else ()
    for line in lines:
        print(f"would remove {line}" if dry_run else f"removed {line}")
    if not lines:
        print("nothing to remove")
