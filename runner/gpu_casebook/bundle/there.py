"""Running a bundle on the host without a network: the case's verdict, and one file to bring back."""

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from gpu_casebook.bundle.document import Bundle, Returned
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.engines.registry import choose
from gpu_casebook.errors import CasebookError, MachineError
from gpu_casebook.evidence import Evidence
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.report.headline import summary
from gpu_casebook.report.pages import publish
from gpu_casebook.revision import CHECKOUT
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped


def is_its_own(home: Path) -> bool:
    """Return whether this runner is the one in the bundle at `home`."""
    return CHECKOUT.resolve() == (home / "checkout").resolve()


def hand_over(home: Path, words: Sequence[str], files: Sequence[Path]) -> NoReturn:
    """Replace this process by the bundle's own runner, since another may judge differently.

    `words` are the command's arguments, with `files` among them.
    """
    named = {str(file) for file in files}
    options = [word for word in words if word not in named]
    os.execv(sys.executable, [sys.executable, str(home / "run.py"), *options])  # noqa: S606


def run(home: Path, options: Options, console: Console, back: Path | None = None) -> tuple[Returned, Path]:
    """Run the bundle at `home`, and write what is to be brought back: `back`, or a file beside the bundle.

    Raises CasebookError where the bundle is damaged or the host lacks what it needs.
    """
    bundle = Bundle.read(home / starter.LIST)
    log = io.StringIO()
    with console.copied_to(log):
        result = _run(home, bundle, replace(options, environment=bundle.environment), console)
    returned = Returned(
        bundle=bundle.model_copy(update={"members": {}}),
        evidence=result if isinstance(result, Evidence) else None,
        skipped=[] if isinstance(result, Evidence) else list(result.reasons),
        console=log.getvalue(),
    )
    path = back or home.parent / f"{bundle.case}.{bundle.environment}.evidence.json"
    returned.write(path)
    return returned, path


def _run(home: Path, bundle: Bundle, options: Options, console: Console) -> Evidence | Skipped:
    root = home / "checkout"
    case = find(root, bundle.case, known_images(root))
    if case.digest() != bundle.case_digest:
        raise CasebookError(f"{case.id}: the case is not as it was packed (a file more or less?); unpack it again")
    with choose(bundle.engine, root, console.say) as engine:
        options = replace(options, image=options.image or bundle.named_image)
        images = [options.image] if options.image else [image.name for image in bundle.packed_images]
        if not options.image and not (images and all(map(engine.image_id, images))):
            with console.step("loading the bundle's environment") as note:
                engine.take_in(home, note)
        if engine.has_images:
            _must_be_there(engine, images)
        result = run_case(case, options, engine, console)
    if isinstance(result, Skipped):
        console.say(f"{case.id}: skipped")
        for line in result.reasons:
            console.say(f"  {line}")
        return result
    for line in summary(result):
        console.say(line)
    publish(home / "reports", result, console.say)
    return result


def _must_be_there(engine: Engine, images: Sequence[str]) -> None:
    for name in images:
        if engine.image_id(name) is None:
            raise MachineError(
                f"the {engine.name} engine here has no image {name}, and there is no network to pull it from; "
                "import it, name another with --image, or pack the bundle without --image"
            )
