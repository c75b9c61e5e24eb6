"""On the host without a network: a verified bundle -> the case's verdict, and one file to bring back."""

import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpu_casebook.bundle.document import Bundle, Returned
from gpu_casebook.bundle.pack import IMAGES, LOCKED
from gpu_casebook.console import Console
from gpu_casebook.engines.choose import choose
from gpu_casebook.errors import CasebookError, MachineError
from gpu_casebook.evidence import Evidence
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import Case, find, known_images
from gpu_casebook.report import publish, summary
from gpu_casebook.revision import CHECKOUT
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Options, Skipped
from gpu_casebook.trial import EngineName
from gpu_casebook.words import size

if TYPE_CHECKING:
    from gpu_casebook.daemon.client import DockerClient

_PATIENCE_S = 3600
"""The engine is silent while it takes in gigabytes."""
_BLOCK = 2**20


def is_its_own(home: Path) -> bool:
    """Whether this runner is the one that the bundle at `home` brought along."""
    return CHECKOUT.resolve() == (home / "checkout").resolve()


def hand_over(home: Path, words: Sequence[str], files: Sequence[Path]) -> NoReturn:
    """Become the bundle's own runner: another may judge otherwise. `words` are the command's, `files` among them."""
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
    _is_as_packed(case, bundle)
    offline(home)
    if bundle.engine is EngineName.DOCKER:
        options = _with_images(home, bundle, options, console)
    with choose(bundle.engine, root, console.say) as engine:
        for line in engine.sweep():
            console.say(f"left by a run that was killed: {line}")
        result = run_case(case, options, engine, console)
    if isinstance(result, Skipped):
        console.say(f"{case.id}: skipped")
        for line in result.reasons:
            console.say(f"  {line}")
        return result
    for line in summary(result):
        console.say(line)
    publish(home / "reports", result)
    return result


def _is_as_packed(case: Case, bundle: Bundle) -> None:
    if case.digest() != bundle.case_digest:
        raise CasebookError(f"{case.id}: the case is not as it was packed (a file more or less?); unpack it again")


def offline(home: Path) -> None:
    """From here on uv looks at the bundle's wheels and nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name in _INDEXES]:
        del os.environ[name]
    os.environ |= {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(home / LOCKED),
        "UV_PYTHON_DOWNLOADS": "never",
    }


_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def _with_images(home: Path, bundle: Bundle, options: Options, console: Console) -> Options:
    """The images are on the engine when this returns; the options name the host's own, if it is to be that."""
    from gpu_casebook.daemon.client import connect  # noqa: PLC0415 the SDK takes a quarter of a second to import

    client = connect(_PATIENCE_S)
    try:
        named = options.image or bundle.named_image
        if named is None:
            _load(client, home, bundle, console)
        else:
            _must_be_there(client, named)
        return replace(options, image=named)
    finally:
        client.close()


def _must_be_there(client: "DockerClient", name: str) -> None:
    from gpu_casebook.daemon.client import find_image  # noqa: PLC0415

    if find_image(client, name) is None:
        raise MachineError(
            f"the Docker engine here has no image {name}, and there is no network to pull it from; "
            "import it, name another with --image, or pack the bundle without --image"
        )


def _load(client: "DockerClient", home: Path, bundle: Bundle, console: Console) -> None:
    from gpu_casebook.daemon.client import find_image, load  # noqa: PLC0415

    if all(find_image(client, image.name) for image in bundle.packed_images):
        return
    with console.step("loading the bundle's image") as note:
        load(client, _pieces(home / IMAGES, note))
    for image in bundle.packed_images:
        _must_be_there(client, image.name)


def _pieces(path: Path, note: Callable[[str], None]) -> Iterator[bytes]:
    done = 0
    with gzip.open(path) as file:
        while block := file.read(_BLOCK):
            yield block
            done += len(block)
            note(f"{size(done)}")
