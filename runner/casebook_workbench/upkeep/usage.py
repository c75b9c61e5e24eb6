"""How much of the engine's disk our images take, which cases use them, and removal of those that none uses."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from failure_signature.text import size
from gpu_casebook.daemon.client import LABEL, DockerClient, names_elsewhere, speaking, tags
from gpu_casebook.errors import EngineError
from gpu_casebook.images import bases
from gpu_casebook.images.build import existing, one_at_a_time, ours
from gpu_casebook.images.stages import Stage, normalised, plan
from gpu_casebook.places import images_of
from gpu_casebook.trial import Note, Recipe

Recipes = Mapping[str, Iterable[Recipe]]
"""Case id -> the recipes of its environments."""

_ORDER = ("override", "environment", "built", "sources", "torch", "tools", "installer", "system", "base")
"""Kinds of images, each before those that it stands on."""


class Layer(NamedTuple):
    """What one stage adds to the one below it."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CaseUse:
    """How much disk the images of one case take."""

    case: str
    images: tuple[str, ...]  # of its environments, as far as they are built
    absent: int  # how many are not built
    own_bytes: int  # would be free without the case
    shared_bytes: int  # in layers that other cases use too


@dataclass(frozen=True, kw_only=True)
class Disk:
    """How much disk all cases take together."""

    cases: int
    images: int
    bytes: int
    unshared_bytes: int  # what it would be if each case had images of its own


Found = Mapping[str, Sequence[Sequence[Layer]]]
"""Case -> for each of its images, the layers from the environment down to the base."""


def layers(client: DockerClient, root: Path, recipes: Recipes) -> tuple[Found, Mapping[str, int]]:
    """Return the layers of each case's images, and how many of its environments have no image."""
    pin, there = bases.read_pin(images_of(root)), ours(client)
    with speaking("list images"):
        sizes = {tag: image["Size"] for image in client.api.images() for tag in image["RepoTags"] or ()}
    tags = {base.identity: base.reference for base in bases.bootstrapped(client)}
    found: dict[str, list[list[Layer]]] = {}
    absent: dict[str, int] = {}
    for case, wanted in recipes.items():
        distinct = {(each.image, each.python, normalised(each.lock)): each for each in wanted}
        stages = [existing(root, recipe, pin, there) for recipe in distinct.values()]
        found[case] = [list(_layers(stage, sizes, tags)) for stage in stages if stage]
        absent[case] = stages.count(None)
    return found, absent


def _layers(stage: Stage, sizes: Mapping[str, int], tags: Mapping[str, str]) -> Iterator[Layer]:
    """Yield the layers of an image. A base pulled by digest may have no tag: it then counts with the stage above it."""
    below = stage.below
    name = below.reference if isinstance(below, Stage) else tags.get(below.identity, below.reference)
    yield Layer(stage.reference, max(sizes.get(stage.reference, 0) - sizes.get(name, 0), 0))
    if isinstance(below, Stage):
        yield from _layers(below, sizes, tags)
    elif name in sizes:
        yield Layer(name, sizes[name])


def shares(found: Found, absent: Mapping[str, int]) -> list[CaseUse]:
    """Return the use of each case, sorted by its name. Pure."""
    mine = {case: dict(layer for chain in chains for layer in chain) for case, chains in found.items()}
    users = Counter(name for layers in mine.values() for name in layers)
    return [
        CaseUse(
            case=case,
            images=tuple(dict.fromkeys(chain[0].name for chain in found[case])),
            absent=absent.get(case, 0),
            own_bytes=sum(size for name, size in layers.items() if users[name] == 1),
            shared_bytes=sum(size for name, size in layers.items() if users[name] > 1),
        )
        for case, layers in sorted(mine.items())
    ]


def disk(found: Found) -> Disk:
    """Return the use of all these cases together. Pure."""
    layers = dict(layer for chains in found.values() for chain in chains for layer in chain)
    each_its_own = (dict(layer for chain in chains for layer in chain) for chains in found.values())
    return Disk(
        cases=sum(1 for chains in found.values() if chains),
        images=len({chain[0].name for chains in found.values() for chain in chains}),
        bytes=sum(layers.values()),
        unshared_bytes=sum(sum(own.values()) for own in each_its_own),
    )


@dataclass(frozen=True, kw_only=True)
class ImageUse:
    """One image of ours on the engine."""

    name: str
    part: str  # see `_ORDER`
    size_bytes: int
    shared_bytes: int  # of `size_bytes`, those in layers of other images too
    cases: tuple[str, ...]


def usage(client: DockerClient, root: Path, recipes: Recipes) -> list[ImageUse]:
    """Return every image of ours with the cases that use it: environments first, then what they stand on, by name."""
    images = _disk_use(client)["Images"] or ()
    cases = _cases_by_tag(client, root, recipes)
    uses = [
        ImageUse(
            name=tag,
            part=_part(image),
            size_bytes=image["Size"],
            shared_bytes=max(image.get("SharedSize", 0), 0),
            cases=tuple(sorted(cases.get(tag, ()))),
        )
        for image in images
        for tag in tags(image)
        if _part(image) in _ORDER and tag.startswith(f"{LABEL}/")
    ]
    return sorted(uses, key=lambda use: (_ORDER.index(use.part), use.name))


def _part(image: Mapping[str, Any]) -> str:
    return str((image.get("Labels") or {}).get(f"{LABEL}.part", ""))


def _cases_by_tag(client: DockerClient, root: Path, recipes: Recipes) -> dict[str, set[str]]:
    """Return tag -> cases, for the images that the cases would get now and those that they stand on."""
    pin = bases.read_pin(images_of(root))
    there = ours(client)
    tags = {base.identity: base.reference for base in bases.bootstrapped(client)}
    base = bases.available(client, pin)
    found: dict[str, set[str]] = {}
    for case, wanted in recipes.items():
        for recipe in wanted:
            stage = existing(root, recipe, pin, there) or (plan(root, recipe, base) if base else None)
            used = [*(each.reference for each in stage.chain()), tags.get(stage.base.identity, "")] if stage else []
            for tag in used:
                found.setdefault(tag, set()).add(case)
    return found


def remove_unused(client: DockerClient, root: Path, recipes: Recipes, note: Note) -> list[str]:
    """Remove the images that no case uses, and what the builder keeps of steps; return the names of the images.

    An image that a container uses stays; `note` gets the reason, and how much disk was freed.
    """
    with one_at_a_time(note):
        before = _layer_bytes(client)
        unused = [use.name for use in usage(client, root, recipes) if not use.cases]
        removed = [name for name in unused if _removed(client, name, note)]
        with speaking("remove what builds left"):
            # An image loses its name to one that another machine built of the same stage at the same time.
            client.images.prune(filters={"dangling": True, "label": [f"{LABEL}.part"]})
            # Without this, BuildKit holds the layers of images that are gone. Downloaded packages are of another type.
            client.api.prune_builds(filters={"type": "regular"})  # type: ignore[arg-type]
        note(f"{size(before - _layer_bytes(client))} freed")
    return removed


def _removed(client: DockerClient, name: str, note: Note) -> bool:
    try:
        with speaking(f"remove {name}"):
            for other in names_elsewhere(client, name):
                client.api.remove_image(other)
            client.api.remove_image(name)
    except EngineError as error:
        note(str(error))
        return False
    return True


def _layer_bytes(client: DockerClient) -> int:
    """Return the bytes of all images, shared layers counted once."""
    return int(_disk_use(client)["LayersSize"])


def _disk_use(client: DockerClient) -> dict[str, Any]:
    with speaking("ask the engine what its disk holds"):
        return client.df()
