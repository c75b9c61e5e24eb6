"""What keeps a checkout in order: lock, schema, clean."""

import sys
from typing import Annotated

import typer

from gpu_casebook.cli.base import CaseIds, CorpusOption, app, chosen_cases, ends_in_one_line, own_root, root, shown


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
def schema(corpus: CorpusOption = None) -> None:
    """Write cases/case.schema.json, from which editors complete and check case.yaml."""
    from gpu_casebook.manifest.schema import write_schema

    print(f"wrote {shown(write_schema(own_root(corpus)))}")


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
