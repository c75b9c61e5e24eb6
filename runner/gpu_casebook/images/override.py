"""An image with given wheels installed over a case's locked environment: does the case fail with my branch?"""

from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import bases, build
from gpu_casebook.images.bases import Base
from gpu_casebook.images.stages import common, plan
from gpu_casebook.trial import Note, Recipe

__all__ = ["ensure"]


def ensure(client: DockerClient, root: Path, recipe: Recipe, wheels: Sequence[Path], note: Note) -> str:
    """Return the name of an image with these wheels over the recipe's environment; all else stays as locked.

    Raises UsageError for a file that is not a wheel, otherwise as `gpu_casebook.images.build.ensure`.
    """
    files = {f"wheels/{path.name}": _read(path) for path in wheels}
    below = build.ensure(client, root, recipe, note)
    with build.one_at_a_time(note):
        base = _base(client, root, below)
        environment = plan(root, recipe, base)
        parents = {"IMAGE": environment, "INSTALLER": environment.parents["INSTALLER"]}
        stage = common(root, "override", parents, files, recipe.image)
        build.make(client, stage, base, note)
    note(f"{', '.join(path.name for path in wheels)} over {below.name}")
    return stage.reference


def _base(client: DockerClient, root: Path, below: ImageFacts) -> Base:
    """Return the base that the environment stands on, which need not be the one that a build would take today."""
    pinned = bases.read_pin(root / "images").reference
    known = [Base(pinned, pinned), *bases.bootstrapped(client)]
    return next(base for base in known if base.identity == below.base)


def _read(path: Path) -> bytes:
    try:
        parse_wheel_filename(path.name)
        return path.read_bytes()
    except InvalidWheelFilename:
        raise UsageError(
            f"--with {path}: not the name of a wheel; build one: pip wheel --no-deps REQUIREMENT"
        ) from None
    except OSError as error:
        raise UsageError(f"--with {path}: can't be read: {error.strerror}") from None
