"""Dockerfile + base + lock -> stages with content keys. It reads images/ and does nothing else.

An image is made in stages, each from one Dockerfile and each with a tag of its own, so that what is common is on the
disk once: `system` (Debian's packages, the same for all), `tools` (what images/<name>/ adds: a CUDA toolkit), `torch`
(those of the locked packages that take gigabytes and are the same in many locks), and `environment` (the rest of the
lock; of some packages only some files, where the lock says so). Where it names packages to be built, `sources` and
`built` come before that. `installer` holds uv and takes part in builds only. The tag is a key over all that goes into a
stage: where an image with that tag exists, there is nothing to do.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from packaging.utils import canonicalize_name

from gpu_casebook.daemon.client import LABEL
from gpu_casebook.errors import UsageError
from gpu_casebook.guest import only
from gpu_casebook.images.bases import Base
from gpu_casebook.manifest.case import known_images
from gpu_casebook.packages.lock import alone, read_lock
from gpu_casebook.pins import SourceFile, Special
from gpu_casebook.places import images_of
from gpu_casebook.trial import PYTHON, Recipe

_BIG = re.compile(r"(torch|triton|nvidia-[a-z0-9-]+)(\[.*\])?==|#")
"""A line of a normalised lock that belongs into the stage `torch`: packages, and the name of their index."""
LOCK = "lock.txt"
UV = "uv.toml"
"""In the context of a stage: what uv is to know besides the machine's settings."""


@dataclass(frozen=True)
class Stage:
    """One Dockerfile with its context."""

    part: str  # system, installer, tools, torch, sources, built, environment or override
    image: str  # the directory in images/; empty for common stages
    dockerfile: str  # its path in `files`
    files: Mapping[str, bytes]  # the build context
    parents: Mapping[str, "Stage | Base"]  # build argument -> the image it names; the first is what this is built from
    upstream: tuple[SourceFile, ...] = ()  # whose wheel goes into the context: the key has its hash, from the lock

    @cached_property
    def key(self) -> str:
        """A digest of all that goes into the stage."""
        parts = {
            "part": [self.part, self.image, self.dockerfile],
            "files": {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()},
            "parents": {name: parent.identity for name, parent in self.parents.items()},
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]

    @property
    def identity(self) -> str:
        return self.key

    @property
    def reference(self) -> str:
        names = {"environment": self.image}
        names |= {part: f"{self.image}-{part}" for part in ("tools", "torch", "sources", "built")}
        return f"{LABEL}/{names.get(self.part, self.part)}:{self.key}"

    @property
    def below(self) -> "Stage | Base":
        """What it is built from; its other parents only lend it files."""
        return next(iter(self.parents.values()))

    @property
    def base(self) -> Base:
        """The base at the bottom."""
        return self.below.base if isinstance(self.below, Stage) else self.below

    def chain(self) -> Iterator["Stage"]:
        """Yield the stage itself and every stage that it is made with."""
        yield self
        for parent in self.parents.values():
            if isinstance(parent, Stage):
                yield from parent.chain()


def plan(root: Path, recipe: Recipe, base: Base) -> Stage:
    """Return the stage of the recipe's environment on `base`. Raises UsageError for an unknown image or Python."""
    if recipe.image not in known_images(root):
        raise UsageError(f"no image {recipe.image!r}; images/ has {', '.join(known_images(root))}")
    if recipe.python != PYTHON:
        raise UsageError(f"image {recipe.image}: Python {recipe.python} is not in it, only Debian's {PYTHON}")
    system = common(root, "system", {"BASE": base}, {})
    installer = common(root, "installer", {"SYSTEM": system}, _files(root, "common/uv.txt"))
    tools = Stage(
        part="tools",
        image=recipe.image,
        dockerfile=f"{recipe.image}/Dockerfile",
        files=_files(root, f"{recipe.image}/**/*"),
        parents={"SYSTEM": system, "INSTALLER": installer},
    )
    lock = normalised(recipe.lock)
    big = "".join(line for line in lock.splitlines(keepends=True) if _BIG.match(line))
    torch = common(root, "torch", {"IMAGE": tools, "INSTALLER": installer}, {LOCK: big.encode()}, recipe.image)
    special = read_lock(recipe.lock).special
    files = {LOCK: lock} | ({UV: alone(special.without_dependencies)} if special.without_dependencies else {})
    below = _built(root, recipe, special.build, torch, installer) if special.build else torch
    parents = {"IMAGE": below, "INSTALLER": installer}
    if special.only:
        stage = _of_files(root, special, parents, files, recipe.image)
    else:
        stage = common(root, "environment", parents, _encoded(files), recipe.image)
    return replace(stage, upstream=recipe.sources)


def _of_files(
    root: Path, special: Special, parents: Mapping[str, Stage | Base], files: Mapping[str, str], image: str
) -> Stage:
    """Return the stage of an environment that has only some files of some packages: no layer has the others."""
    chosen = {"packages.txt": " ".join(special.without_dependencies), "only.txt": " ".join(special.only)}
    context = _encoded({**files, **chosen}) | {"only.py": Path(only.__file__).read_bytes()}
    return replace(common(root, "files", parents, context, image), part="environment")


def _built(root: Path, recipe: Recipe, names: Collection[str], torch: Stage, installer: Stage) -> Stage:
    """Return the stage of an environment in which the named packages have been built."""
    lines = normalised(recipe.lock).splitlines(keepends=True)
    own = [line for line in lines if canonicalize_name(re.split(r"[=\[]", line)[0]) in names]
    rest = {
        LOCK: "".join(line for line in lines if line not in own),
        "sources.txt": "".join(own),
        UV: alone(names),
    }
    files = _encoded(rest) | _files(root, "common/sources.py")
    sources = common(root, "sources", {"IMAGE": torch, "INSTALLER": installer}, files, torch.image)
    parents = {"IMAGE": replace(sources, upstream=recipe.sources), "INSTALLER": installer}
    return common(root, "built", parents, _encoded({LOCK: "".join(own)}), torch.image)


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def common(
    root: Path, part: str, parents: Mapping[str, Stage | Base], files: Mapping[str, bytes], image: str = ""
) -> Stage:
    """Return the stage of a Dockerfile in images/common/, with `files` in its context."""
    path = f"common/{part}.Dockerfile"
    return Stage(part=part, image=image, dockerfile=path, files=_files(root, path) | dict(files), parents=parents)


def _files(root: Path, pattern: str) -> dict[str, bytes]:
    top = images_of(root)
    return {str(path.relative_to(top)): path.read_bytes() for path in top.glob(pattern) if path.is_file()}


def normalised(lock: str) -> str:
    """Return the lock with a requirement and its hashes on each line, sorted, and of its comments an index's name."""
    joined = re.sub(r"\\\r?\n", " ", re.sub(r"(?m)(^|\s)#.*$", "", lock))
    lines = (" ".join(line.split()) for line in joined.splitlines())
    indexes = "".join(f"# index: {name}\n" for name in read_lock(lock).special.indexes)
    return indexes + "".join(f"{line}\n" for line in sorted(lines) if line)
