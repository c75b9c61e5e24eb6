"""Images in a registry, by their recipes: pushed from one engine, pulled to others in the place of a build.

In a registry an image has the name it has where its base is the pinned one, whichever it was built on: an engine that
has nothing knows no other. Its labels say what it is, and are compared with the recipe.
"""

import re
from contextlib import suppress
from pathlib import Path

from failure_signature.text import Lasting
from gpu_casebook.daemon import registry
from gpu_casebook.daemon.client import LABEL, DockerClient, speaking, tag
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.images.bases import Base, read_pin
from gpu_casebook.images.stages import plan
from gpu_casebook.places import images_of
from gpu_casebook.trial import Note, Recipe

VARIABLE = "CASEBOOK_REGISTRY"
"""Where images are pulled from before they are built."""
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


def push(client: DockerClient, image: str, name: str, note: Note) -> str:
    """Push the image of this id under a name that `name_in` gave; return that with its digest. Raises EngineError."""
    note(f"pushing {name}")
    tag(client, image, name)
    try:
        return f"{name}@{registry.push(client, name)}"
    finally:
        if isinstance(client, PodmanClient):  # which would tell of another digest: of the manifest that it has itself
            with suppress(EngineError), speaking(f"forget the name {name}"):
                client.api.remove_image(name, noprune=True)


def pull(client: DockerClient, root: Path, recipe: Recipe, source: str, note: Note) -> bool:
    """Pull the recipe's image and return True; where that can't be, `note` gets the reason.

    Raises MachineError where the disk is full, and UsageError for no address.
    """
    name = name_in(source, root, recipe)
    try:
        found = registry.pull(client, name, note)
        tag(client, found.id, _reference(client, root, recipe, name))
    except EngineError as error:
        note(Lasting(f"{error}; building it instead"))
        return False
    return True


def _reference(client: DockerClient, root: Path, recipe: Recipe, name: str) -> str:
    """Return what the image is called on an engine. Raises EngineError for one of another recipe."""
    with speaking(f"look at {name}"):
        labels = client.images.get(name).labels
    base = labels.get(f"{LABEL}.base", "")
    stage = plan(root, recipe, Base(base, base))
    if stage.key != labels.get(f"{LABEL}.key"):
        raise EngineError(f"{name} is of another recipe, by its labels")
    return stage.reference


def name_in(address: str, root: Path, recipe: Recipe) -> str:
    """Return the name of the recipe's image in a registry. Raises UsageError for no address."""
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"{address!r} is no registry; write HOST[:PORT][/PATH], such as registry.example/OWNER")
    pinned = read_pin(images_of(root)).reference
    return f"{address}/{plan(root, recipe, Base(pinned, pinned)).reference}"
