"""`casebook grade`: is somebody else's fix one?"""

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_casebook.cli.base import CorpusOption, EngineOption, app, ends_in_one_line, root_with, shown
from gpu_casebook.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from casebook_workbench.grade.graded import Graded
    from casebook_workbench.grade.grading import Mark


@app.command()
@ends_in_one_line
def grade(
    case: Annotated[
        str | None, typer.Argument(metavar="[CASE]", help="Without it: the cases that can be graded.")
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="subject.py with the fix, or a diff. Without it: the task.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31, help="Of the inputs. Without it: one that nobody knew before.")
    ] = None,
    engine: EngineOption = None,
    harbor: Annotated[
        Path | None, typer.Option(help="Write the case, or all, as tasks in Harbor's format below this directory.")
    ] = None,
    corpus: CorpusOption = None,
) -> None:
    """Grade a fix of a case: run it on inputs from a fresh seed, and compare with a reference that it does not see.

    Exit status 0: accepted; 12: refused; 13: the case's own fix fails here; 14: it can't run here.
    """
    from casebook_workbench.grade.graded import gradable, load
    from gpu_casebook.manifest.case import find, known_images
    from gpu_casebook.places import grading_of

    top = root_with(case or "", corpus)
    images = known_images(top)
    if harbor is not None:
        if candidate is not None:
            raise UsageError("--harbor writes tasks; leave the candidate out")
        wanted = [case] if case else gradable(top)
        _tasks(top, [load(top, find(top, each, images)) for each in wanted], harbor, engine)
        return
    if case is None:
        for each in gradable(top):
            print(each)
        return
    graded = load(top, find(top, case, images))
    if candidate is None:
        from casebook_workbench.grade.task import statement

        print(statement(graded))
        print(f"\nThe file to begin with: {shown(grading_of(top, case).with_name('subject.py'))}")
        return
    _grade(top, graded, candidate, secrets.randbelow(2**31) if seed is None else seed, engine)


def _grade(top: Path, graded: "Graded", candidate: Path, seed: int, name: str | None) -> None:
    from casebook_workbench.grade.grading import candidate_text, grade
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import choose
    from gpu_casebook.run.plan import Skipped

    out = Console(sys.stdout)
    text = candidate_text(candidate, graded)
    with choose(name, top, out.say) as engine:
        out.say(f"{graded.case.id} in environment {graded.grading.environment} ({engine.version}), seed {seed}")
        if not engine.has_images:
            out.say(
                "the candidate can read this machine's files: where you do not trust it, use an engine with containers"
            )
        mark = grade(graded, text, engine, out, seed)
    if isinstance(mark, Skipped):
        out.say(f"{graded.case.id}: skipped")
        for reason in mark.reasons:
            out.say(f"  {reason}")
    else:
        for line in words(mark, graded.grading.rounds):
            out.say(line)
    raise typer.Exit(ExitStatus.of(mark.verdict))


def _tasks(top: Path, graded: "list[Graded]", into: Path, name: str | None) -> None:
    from casebook_workbench.grade.harbor import write_task
    from failure_signature.kinds import Variant
    from gpu_casebook.console import Console
    from gpu_casebook.engines.registry import capable, choose
    from gpu_casebook.run.plan import recipe

    out = Console(sys.stdout)
    with choose(name or capable("has_images"), top, out.say) as engine:
        for each in graded:
            with out.step(f"preparing {each.case.id}") as note:
                prepared = engine.prepare(recipe(each.case, each.grading.environment, Variant.REPRO), note)
            if prepared.image is None:
                raise UsageError(f"a task needs an image, and the {engine.name} engine has none; use docker")
            place = write_task(each, into, image=prepared.image.name, python=prepared.python)
            out.say(f"task: {shown(place)} (image {prepared.image.name})")


def words(mark: "Mark", rounds: int) -> list[str]:
    """Return what a mark says, the first line alone enough."""
    from failure_signature.trials import Verdict

    if mark.verdict is Verdict.CONFIRMED:
        if mark.seconds is None or mark.fixed_seconds is None:
            raise UsageError("a mark without times")
        times = f"{mark.seconds:.3g} s a round, fixed.py {mark.fixed_seconds:.3g} s"
        return [f"accepted: equal to the reference in {rounds} of {rounds} rounds; {times}"]
    what = "refused" if mark.verdict is Verdict.FIX_FAILS else "not graded"
    return [f"{what}: {mark.against[0]}", *(f"  {each}" for each in mark.against[1:])]
