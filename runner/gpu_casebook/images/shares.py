"""What each case adds to the engine's disk: layers of its own, and layers that others stand on too."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.daemon.client import DockerClient, speaking
from gpu_casebook.images import bases, build
from gpu_casebook.images.build import Recipes, Stage
from gpu_casebook.trial import Recipe

__all__ = ["CaseUse", "Disk", "Layers", "disk", "look", "shares"]


class Layers(NamedTuple):
    """What one stage adds to the one below it."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CaseUse:
    """Bytes in the images of one case. `own_bytes` would go with the case, `shared_bytes` other cases stand on too.

    `images` are its environments' images that are there, `absent` counts those that are not built.
    """

    case: str
    images: tuple[str, ...]
    absent: int
    own_bytes: int
    shared_bytes: int


@dataclass(frozen=True, kw_only=True)
class Disk:
    """All cases together: on the disk, and what it would be if each case had images of its own."""

    cases: int
    images: int
    bytes: int
    unshared_bytes: int


Found = Mapping[str, Sequence[Sequence[Layers]]]
"""Case -> of each of its environments that has an image, the layers from the environment down to the base."""


def look(client: DockerClient, root: Path, recipes: Recipes) -> tuple[Found, Mapping[str, int]]:
    """What is there for each case, and how many of its environments have no image."""
    pin, there = bases.read_pin(root / "images"), build.ours(client)
    with speaking("list images"):
        sizes = {tag: image["Size"] for image in client.api.images() for tag in image["RepoTags"] or ()}
    tags = {base.identity: base.reference for base in bases.bootstrapped(client)}
    found: dict[str, list[list[Layers]]] = {}
    absent: dict[str, int] = {}
    for case, wanted in recipes.items():
        stages = [build.existing(root, recipe, pin, there) for recipe in _distinct(wanted)]
        found[case] = [list(_layers(stage, sizes, tags)) for stage in stages if stage]
        absent[case] = stages.count(None)
    return found, absent


def _distinct(recipes: Iterable[Recipe]) -> list[Recipe]:
    return list({(each.image, each.python, build.normalised(each.lock)): each for each in recipes}.values())


def _layers(stage: Stage, sizes: Mapping[str, int], tags: Mapping[str, str]) -> Iterator[Layers]:
    """A base that was pulled by its digest may have no tag: then it is counted with the stage that stands on it."""
    below = stage.below
    name = below.reference if isinstance(below, Stage) else tags.get(below.identity, below.reference)
    yield Layers(stage.reference, max(sizes.get(stage.reference, 0) - sizes.get(name, 0), 0))
    if isinstance(below, Stage):
        yield from _layers(below, sizes, tags)
    elif name in sizes:
        yield Layers(name, sizes[name])


def shares(found: Found, absent: Mapping[str, int]) -> list[CaseUse]:
    """Of each case, by name. Pure."""
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
    """Of all these cases together. Pure."""
    layers = dict(layer for chains in found.values() for chain in chains for layer in chain)
    each_its_own = (dict(layer for chain in chains for layer in chain) for chains in found.values())
    return Disk(
        cases=sum(1 for chains in found.values() if chains),
        images=len({chain[0].name for chains in found.values() for chain in chains}),
        bytes=sum(layers.values()),
        unshared_bytes=sum(sum(own.values()) for own in each_its_own),
    )
