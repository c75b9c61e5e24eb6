"""An image with given wheels installed over a case's locked environment: does the case fail with my branch?"""

from collections.abc import Sequence
from pathlib import Path

from gpu_casebook.daemon.client import DockerClient, find_image
from gpu_casebook.errors import BuildError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import bases, build
from gpu_casebook.images.bases import Base
from gpu_casebook.images.stages import common, plan
from gpu_casebook.places import images_of
from gpu_casebook.trial import Note, Recipe

__all__ = ["ensure", "with_its_own"]


def with_its_own(client: DockerClient, root: Path, recipe: Recipe, note: Note) -> ImageFacts:
    """Return an image with what the recipe names put over its environment. Raises as `ensure` and `overlay.wheels`."""
    from gpu_casebook.packages import overlay  # noqa: PLC0415 it brings the resolver

    with overlay.wheels(recipe, note) as wheels:
        return ensure(client, root, recipe, wheels, note)


def ensure(client: DockerClient, root: Path, recipe: Recipe, wheels: Sequence[Path], note: Note) -> ImageFacts:
    """Return an image with these wheels over the recipe's environment; all else stays as locked.

    Raises as `gpu_casebook.images.build.ensure`.
    """
    below = build.ensure(client, root, recipe, note)
    if not wheels:
        return below
    files = {f"wheels/{path.name}": path.read_bytes() for path in wheels}
    with build.one_at_a_time(note):
        base = _base(client, root, below, note)
        environment = plan(root, recipe, Base(below.name, below.base or ""))
        parents = {"IMAGE": environment, "INSTALLER": plan(root, recipe, base).parents["INSTALLER"]}
        stage = common(root, "override", parents, files, recipe.image)
        build.make(client, stage, base, note)
    found = find_image(client, stage.reference)
    if found is None:
        raise BuildError(f"{stage.reference} was built and is not there; is something removing images?")
    return found.model_copy(update={"base": base.identity})


def _base(client: DockerClient, root: Path, below: ImageFacts, note: Note) -> Base:
    """Return the base that the environment stands on, which need not be the one that a build would take today.

    Where it was pulled, its base need not be there: another one has the installer too.
    """
    pin = bases.read_pin(images_of(root))
    known = [Base(pin.reference, pin.reference), *bases.bootstrapped(client)]
    there = (base for base in known if base.identity == below.base)
    return next(there, None) or bases.obtain(client, pin, note)
