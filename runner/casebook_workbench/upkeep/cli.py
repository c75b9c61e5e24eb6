"""What keeps images and reports in order: images, refresh-bases, report."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failure_signature.text import size
from gpu_casebook.cli.base import CaseIds, app, chosen_cases, ends_in_one_line, own_root, root, shown
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.places import reports_of

_NAMED = 3
"""Cases that a line names."""

if TYPE_CHECKING:
    from casebook_workbench.upkeep.usage import Found, ImageUse
    from gpu_casebook.daemon.client import DockerClient
    from gpu_casebook.manifest.case import Case


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
    from casebook_workbench.upkeep import usage as uses
    from gpu_casebook.console import Console
    from gpu_casebook.daemon.podman import connect_any
    from gpu_casebook.daemon.registry import SILENCE_S
    from gpu_casebook.images import build as builder
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
    from failure_signature.kinds import Variant
    from gpu_casebook.console import Console
    from gpu_casebook.images import build as builder
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
    from casebook_workbench.upkeep.usage import disk, shares

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
def report(
    reports: Annotated[Path | None, typer.Option(help="Where the evidence is. Without it: reports/.")] = None,
) -> None:
    """Render every report again from the evidence, with nothing run.

    Evidence that drifted goes where there is later, exact evidence of the same case, environment, verdict and card.
    """
    from casebook_workbench.upkeep.rebuild import remove_overtaken, render_all

    unread, top = list[str](), reports or reports_of(root(), published=True)
    for path in remove_overtaken(top):
        print(f"removed {shown(path)}: later evidence of the same is exact")
    for path in render_all(top, unread.append):
        print(f"wrote {shown(path)}")
    if unread:
        raise CasebookError("\n".join(unread))
