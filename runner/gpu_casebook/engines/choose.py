"""Which engine runs the trials: the one that is named, or the best that is there."""

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.trial import EngineName, Note, Recipe

if TYPE_CHECKING:
    from gpu_casebook.daemon.client import DockerClient


def choose(name: str | None, root: Path, note: Note) -> Engine:
    """With no engine named: docker if a daemon answers, otherwise venv, and `note` is told which and why.

    `root` is the checkout, which has the images. Raises UsageError for an engine that does not exist and EngineError
    if the one that is named does not answer.
    """
    match _named(name):
        case EngineName.DOCKER:
            return _docker(root)
        case EngineName.VENV:
            return _venv()
        case None:
            return _best(root, note)


def reachable(root: Path) -> Sequence[Engine]:
    """Every engine that answers here."""
    engines: list[Engine] = []
    for make in (partial(_docker, root), _venv):
        try:
            engines.append(make())
        except EngineError:
            continue
    return engines


def _named(name: str | None) -> EngineName | None:
    if name is None:
        return None
    try:
        return EngineName(name)
    except ValueError:
        nearest = get_close_matches(name, list(EngineName), n=1)
        meant = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise UsageError(f"no engine {name!r}{meant}; there are: {', '.join(EngineName)}") from None


def _best(root: Path, note: Note) -> Engine:
    try:
        engine = _docker(root)
    except EngineError as error:
        note(f"engine: venv, with weaker isolation ({error})")
        return _venv()
    note(f"engine: docker ({engine.version})")
    return engine


def _docker(root: Path) -> Engine:
    from gpu_casebook.engines.docker.engine import DockerEngine  # noqa: PLC0415 the SDK takes a quarter of a second to import

    def build(client: "DockerClient", recipe: Recipe, note: Note) -> ImageFacts:
        from gpu_casebook.images.build import ensure  # noqa: PLC0415 images are built through the client of this package

        return ensure(client, root, recipe, note)

    return DockerEngine.connect(build)


def _venv() -> Engine:
    from gpu_casebook.engines.venv.engine import VenvEngine  # noqa: PLC0415 as above

    return VenvEngine()
