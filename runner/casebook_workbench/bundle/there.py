"""Running a bundle on the host without a network: a run of the corpus, and one file to bring back."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, TextIO

from casebook_workbench.bundle.document import Bundle, Returned
from casebook_workbench.corpus import journal
from casebook_workbench.corpus import run as corpus
from casebook_workbench.corpus.begin import Request
from casebook_workbench.corpus.model import Job, Run, Settings
from casebook_workbench.corpus.selection import Selection
from failure_signature.text import size
from gpu_casebook.console import Console
from gpu_casebook.engines.registry import choose
from gpu_casebook.errors import CasebookError, EngineError, MachineError, UsageError
from gpu_casebook.evidence import load
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.revision import CHECKOUT
from gpu_casebook.run.options import Options


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for; None is all of it."""

    options: Options
    engine: str | None = None  # None is the bundle's own
    cases: Sequence[str] | None = None
    environments: Sequence[str] | None = None
    max_age_s: float = 0.0
    output: Path | None = None
    words: Sequence[str] = ()
    """The options as they were given."""


@dataclass(frozen=True, kw_only=True)
class _Packed(Selection):
    """Nothing but what was packed: a case may have other environments."""

    jobs: Sequence[str]

    def takes(self, job: Job) -> bool:
        return job.name in self.jobs and super().takes(job)


def is_its_own(home: Path) -> bool:
    """Return whether this runner is the one in the bundle at `home`."""
    return CHECKOUT.resolve() == (home / "checkout").resolve()


def hand_over(home: Path, words: Sequence[str]) -> NoReturn:
    """Replace this process by the bundle's own runner, since another may judge differently. `words` are its options."""
    os.execv(sys.executable, [sys.executable, str(home / "run.py"), *words])  # noqa: S606


def run(home: Path, asked: Asked, out: TextIO) -> int:
    """Run the bundle at `home`, or go on with a run of the same that ended early; return its exit status.

    However it ends, what is finished is written to the file that is to be brought back: `asked.output`, or one beside
    the bundle. Raises CasebookError where the bundle is damaged or the host lacks what it needs, and as a run of the
    corpus does.
    """
    bundle, say = Bundle.read(home / starter.LIST), Console(out).say
    options = replace(asked.options, image=asked.options.image or bundle.named_image)
    _check_cases(home, bundle)
    engine = asked.engine or bundle.engine
    _provide(home, bundle, engine, options.image, Console(out))
    request = Request(
        settings=Settings(root=str(home / "checkout"), reports=str(home / "reports"), engine=engine, options=options),
        selection=_Packed(
            cases=asked.cases or list(bundle.digests),
            environment=asked.environments,
            jobs=[job.name for job in bundle.jobs],
        ),
        max_age_s=asked.max_age_s,
        gpus=options.gpus,
        command=shlex.join([*bundle.run.split(), *asked.words]),
    )
    before = _newest(home)
    try:
        if before and before.left and _same(before, request):
            return corpus.resume(request, before.id, out)
        return corpus.start(request, out)
    finally:
        if made := _newest(home):
            path = asked.output or home.parent / f"{bundle.name}.evidence.json"
            _returned(home, bundle, made).write(path)
            say(f"bring back: {path} ({size(path.stat().st_size)}); then: nox -s bundle-join -- {path.name}")


def _newest(home: Path) -> Run | None:
    with suppress(UsageError):
        return journal.read(journal.find(home / "reports", None))
    return None


def _same(run: Run, request: Request) -> bool:
    asked = Settings.model_validate_json(request.settings.model_dump_json())  # what a record has of them
    return (run.settings, run.selection) == (asked, str(request.selection))


def _returned(home: Path, bundle: Bundle, run: Run) -> Returned:
    paths = [home / "reports" / each.evidence for each in run.finished if each.evidence]
    return Returned(bundle=bundle.model_copy(update={"members": {}}), run=run, evidence=list(map(load, paths)))


def _check_cases(home: Path, bundle: Bundle) -> None:
    root = home / "checkout"
    for id_, digest in bundle.digests.items():
        if find(root, id_, known_images(root)).digest() != digest:
            raise CasebookError(f"{id_}: the case is not as it was packed (a file more or less?); unpack it again")


def _provide(home: Path, bundle: Bundle, kind: str, image: str | None, console: Console) -> None:
    """Load what was packed, unless it is there; or look for the host's own image."""
    with choose(kind, home / "checkout", console.say) as engine:
        if engine.has_images != bool(bundle.images):
            raise UsageError(f"--engine {kind}: the bundle was packed for {bundle.engine}; pack it for {kind}")
        images = [image] if image else [each.name for each in bundle.packed_images]
        if not image and not (images and all(map(engine.image_id, images))):
            with console.step("loading the bundle's environments") as note:
                try:
                    engine.take_in(home, note)
                except EngineError as error:
                    if bundle.left_out:
                        raise MachineError(
                            f"{error}; layers that the host had are left out: pack it again without --host-has"
                        ) from None
                    raise
        for name in images if engine.has_images else ():
            if engine.image_id(name) is None:
                raise MachineError(
                    f"the {engine.name} engine here has no image {name}, and there is no network to pull it from; "
                    "import it, name another with --image, or pack the bundle without --image"
                )
