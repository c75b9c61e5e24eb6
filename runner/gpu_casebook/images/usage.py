"""What images of ours take of the engine's disk, which cases use them, and the removal of those that none uses."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpu_casebook.daemon.client import LABEL, DockerClient, speaking
from gpu_casebook.errors import EngineError
from gpu_casebook.images import bases
from gpu_casebook.images.build import existing, one_at_a_time, ours
from gpu_casebook.images.stages import Stage, normalised, plan
from gpu_casebook.trial import Note, Recipe
from gpu_casebook.words import size

Recipes = Mapping[str, Iterable[Recipe]]
"""What the cases need: case id -> the recipes of its environments."""

_ORDER = ("override", "environment", "tools", "installer", "system", "base")
"""Parts of an image, each before those that it stands on."""


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


def layers(client: DockerClient, root: Path, recipes: Recipes) -> tuple[Found, Mapping[str, int]]:
    """What is there for each case, and how many of its environments have no image."""
    pin, there = bases.read_pin(root / "images"), ours(client)
    with speaking("list images"):
        sizes = {tag: image["Size"] for image in client.api.images() for tag in image["RepoTags"] or ()}
    tags = {base.identity: base.reference for base in bases.bootstrapped(client)}
    found: dict[str, list[list[Layers]]] = {}
    absent: dict[str, int] = {}
    for case, wanted in recipes.items():
        stages = [existing(root, recipe, pin, there) for recipe in _distinct(wanted)]
        found[case] = [list(_layers(stage, sizes, tags)) for stage in stages if stage]
        absent[case] = stages.count(None)
    return found, absent


def _distinct(recipes: Iterable[Recipe]) -> list[Recipe]:
    return list({(each.image, each.python, normalised(each.lock)): each for each in recipes}.values())


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


@dataclass(frozen=True, kw_only=True)
class ImageUse:
    """One image of ours on the engine. Sizes in bytes; `shared_bytes` of them are in layers of other images too."""

    name: str
    part: str
    size_bytes: int
    shared_bytes: int
    cases: tuple[str, ...]


def usage(client: DockerClient, root: Path, recipes: Recipes) -> list[ImageUse]:
    """Every image of ours, with the cases that use it: environments first, then what they stand on, by name."""
    with speaking("ask the engine what its disk holds"):
        images = client.df()["Images"] or []
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
        for tag in image.get("RepoTags") or ()
        if _part(image) in _ORDER and tag != "<none>:<none>"
    ]
    return sorted(uses, key=lambda use: (_ORDER.index(use.part), use.name))


def _part(image: Mapping[str, Any]) -> str:
    return str((image.get("Labels") or {}).get(f"{LABEL}.part", ""))


def _cases_by_tag(client: DockerClient, root: Path, recipes: Recipes) -> dict[str, set[str]]:
    """Tag -> cases, over the images that the cases would get now and all that these stand on."""
    pin = bases.read_pin(root / "images")
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
    """Remove the images that no case uses, and what builds that were killed left; a line for each thing removed.

    An image that a container runs in stays. `note` is told of it, and of how much disk was freed.
    """
    with one_at_a_time(note):
        before = _layer_bytes(client)
        unused = [use.name for use in usage(client, root, recipes) if not use.cases]
        removed = [name for name in unused if _removed(client, name, note)]
        with speaking("remove what killed builds left"):
            pruned = client.images.prune(filters={"dangling": True, "label": [f"{LABEL}.part"]})
        note(f"{size(before - _layer_bytes(client))} freed")
    return [*removed, *(["what killed builds left"] if pruned["ImagesDeleted"] else [])]


def _removed(client: DockerClient, name: str, note: Note) -> bool:
    try:
        with speaking(f"remove {name}"):
            client.api.remove_image(name)
    except EngineError as error:
        note(str(error))
        return False
    return True


def _layer_bytes(client: DockerClient) -> int:
    """All images together, what they share counted once."""
    with speaking("ask the engine what its disk holds"):
        return int(client.df()["LayersSize"])
