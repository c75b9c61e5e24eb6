"""Build the image of a recipe, or find it: each stage that is not on the engine, in order."""

import io
import os
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from platformdirs import user_cache_path, user_log_path

from failure_signature.text import one_line, size
from gpu_casebook.daemon.buildkit import build
from gpu_casebook.daemon.client import LABEL, DockerClient, digest_of, find_image, speaking, tags
from gpu_casebook.errors import BuildError, EngineError, MachineError, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import bases, registry
from gpu_casebook.images.bases import BOOTSTRAPPED, Base, BasePin
from gpu_casebook.images.stages import LOCK, UV, Stage, plan
from gpu_casebook.locking import sole
from gpu_casebook.packages import index
from gpu_casebook.packages.lock import ROOM_PER_WHEEL_BYTE, exactly, installable, wheel_bytes
from gpu_casebook.packages.settings import BuildSettings, collect, for_uv
from gpu_casebook.packages.sources import wheel
from gpu_casebook.places import images_of
from gpu_casebook.trial import Note, Recipe

_LAST_LINES = 20
_ROOM_FOR_TOOLS = 2 * 2**30  # bytes, for the stages below the environment


def ensure(client: DockerClient, root: Path, recipe: Recipe, note: Note, source: str | None = None) -> ImageFacts:
    """Return the recipe's image; unless it is there, pull it from the registry `source`, or else build it.

    Without `source` it is the registry that CASEBOOK_REGISTRY names, if any. `use_image` is left to the engine.

    Raises BuildError with the last lines and the path of the full log, EngineError, MachineError if the disk is too
    small, UsageError for an unknown image or Python.
    """
    pin = bases.read_pin(images_of(root))
    found = _find(client, root, recipe, pin)
    if found:
        return found
    source = source or os.environ.get(registry.VARIABLE)
    with one_at_a_time(note):
        found = _find(client, root, recipe, pin)
        if not found and source and registry.pull(client, root, recipe, source, note):
            found = _find(client, root, recipe, pin)
        return found or _construct(client, root, recipe, pin, note)


def build_all(
    client: DockerClient, root: Path, recipes: Iterable[Recipe], note: Note, source: str | None = None
) -> list[ImageFacts]:
    """Return every recipe's image, each once, in the recipes' order. Raises as `ensure` does."""
    facts = [ensure(client, root, recipe, note, source) for recipe in recipes]
    return list({image.name: image for image in facts}.values())


def push_all(client: DockerClient, root: Path, recipes: Iterable[Recipe], to: str, note: Note) -> list[str]:
    """Push every recipe's image to the registry `to`, built where it is not there; return their names with digests."""
    made = {registry.name_in(to, root, recipe): ensure(client, root, recipe, note).id for recipe in recipes}
    return [registry.push(client, image, name, note) for name, image in made.items()]


def reference(root: Path, recipe: Recipe, base: str) -> str | None:
    """Return the name of the recipe's image on the base of this identity, or None if that base is no longer in use."""
    if not _current(base, bases.read_pin(images_of(root))):
        return None
    return plan(root, recipe, Base(base, base)).reference


def absent(client: DockerClient, root: Path, recipes: Iterable[Recipe]) -> list[Recipe]:
    """Return the recipes that `ensure` would build. One for which it would raise UsageError is left out."""
    return missing(root, recipes, ours(client))


def missing(root: Path, recipes: Iterable[Recipe], there: Mapping[str, Mapping[str, Any]]) -> list[Recipe]:
    """Return the recipes whose image is not among those `there`, as `absent` does."""
    pin, found = bases.read_pin(images_of(root)), []
    for recipe in recipes:
        with suppress(UsageError):
            if existing(root, recipe, pin, there) is None:
                found.append(recipe)
    return found


def _find(client: DockerClient, root: Path, recipe: Recipe, pin: BasePin) -> ImageFacts | None:
    """Look for the recipe's image on every known base. The base itself need not be on the engine."""
    there = ours(client)
    stage = existing(root, recipe, pin, there)
    if stage is None:
        return None
    image = there[stage.reference]
    return ImageFacts(
        name=stage.reference,
        id=image["Id"],
        size_bytes=image["Size"],
        base=stage.base.identity,
        digest=digest_of(image),
    )


def existing(root: Path, recipe: Recipe, pin: BasePin, there: Mapping[str, Mapping[str, Any]]) -> Stage | None:
    stages = (plan(root, recipe, base) for base in _known_bases(pin, there.values()))
    return next((stage for stage in stages if stage.reference in there), None)


def ours(client: DockerClient) -> dict[str, dict[str, Any]]:
    """Return tag -> the engine's summary for every image of ours, youngest first."""
    with speaking("list images"):
        images = client.api.images(filters={"label": f"{LABEL}.key"})
    images.sort(key=lambda image: image["Created"], reverse=True)
    return {tag: image for image in images for tag in tags(image)}


def _known_bases(pin: BasePin, images: Iterable[Mapping[str, Any]]) -> list[Base]:
    made = [image["Labels"].get(f"{LABEL}.base", "") for image in images]
    return [Base(identity, identity) for identity in dict.fromkeys([pin.reference, *made]) if _current(identity, pin)]


def _current(identity: str, pin: BasePin) -> bool:
    return identity == pin.reference or identity.startswith(BOOTSTRAPPED)


@contextmanager
def one_at_a_time(note: Note) -> Iterator[None]:
    """Hold the build lock of this machine: two builds would make the stages they have in common twice."""
    path = user_cache_path(LABEL) / "builds.lock"
    with sole(path, note, "waiting for another build on this machine to end"):
        yield


def _construct(client: DockerClient, root: Path, recipe: Recipe, pin: BasePin, note: Note) -> ImageFacts:
    installable(recipe.lock, recipe.python)
    base = bases.obtain(client, pin, note)
    stage = plan(root, recipe, base)
    _check_room(client, base, recipe, note)
    make(client, stage, base, note)
    found = find_image(client, stage.reference)
    if found is None:
        raise BuildError(f"{stage.reference} was built and is not there; is something removing images?")
    return found.model_copy(update={"base": base.identity})


def make(client: DockerClient, stage: Stage, base: Base, note: Note) -> None:
    """Build the stage and those it stands on, except those that are there. The caller holds `one_at_a_time`."""
    if find_image(client, stage.reference):
        return
    for parent in stage.parents.values():
        if isinstance(parent, Stage):
            make(client, parent, base, note)
    note(f"building {stage.reference}")
    confined = stage.part == "built"  # what it builds are programs that nobody here has read
    lock = stage.files.get(LOCK, b"").decode()
    there = index.wheels(lock, os.environ)
    with tempfile.TemporaryFile() as context:  # without a name: a build that is killed leaves none
        own = {path.name: path.resolve() for path in there} | (
            {LOCK: exactly(lock).encode()} if lock and not confined else {}
        )
        _archive({**stage.files, **wheel(stage.upstream), **own}, context)
        output = build(
            client,
            context,
            dockerfile=stage.dockerfile,
            tag=stage.reference,
            labels={f"{LABEL}.key": stage.key, f"{LABEL}.image": stage.image, f"{LABEL}.base": base.identity},
            arguments={name: parent.reference for name, parent in stage.parents.items()},
            settings=BuildSettings("") if confined else _settings(stage, lock, there),
            network="none" if confined else "host",
        )
        with closing(output):
            try:
                _follow(output, stage, note)
            except BuildError as error:
                raise index.explained(error, lock) from error


def _settings(stage: Stage, lock: str, there: Sequence[Path]) -> BuildSettings:
    settings, more = collect(), ""
    if UV in stage.files:
        more += f"export UV_CONFIG_FILE=/mnt/{UV}\n"
    if index.pinned(lock) and not there and not index.mirror(for_uv(os.environ)):
        more += f"export {index.BACKEND}=cpu\n"
    if stage.upstream or there:
        more += 'export UV_FIND_LINKS="${UV_FIND_LINKS:+$UV_FIND_LINKS,}/mnt"\n'
    return replace(settings, script=settings.script + more)


def _archive(files: Mapping[str, bytes | Path], file: IO[bytes]) -> None:
    """Write the build context as a tar archive."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path, data in sorted(files.items()):
            if isinstance(data, Path):
                archive.add(data, path)
                continue
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    file.seek(0)


def _follow(output: Iterator[str], stage: Stage, note: Note) -> None:
    """Write the output to a log, and pass the lines that show progress to `note`. Raises BuildError."""
    name = stage.reference.partition("/")[2].replace(":", "-")
    path = user_log_path(LABEL, ensure_exists=True) / f"build-{name}.log"
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with path.open("w", encoding="utf-8") as log:
        try:
            for line in output:
                log.write(line + "\n")
                printed = _PRINTED.match(line)
                if printed:
                    last.append(printed[1])
                shown = progress(line)
                if shown:
                    note(shown)
        except BuildError as error:
            text = [str(error), "its last lines:", *(f"  {line}" for line in last), f"full log: {path}"]
            raise BuildError("\n".join(text)) from error


_PRINTED = re.compile(r"(?:#\d+ \d+\.\d+ |(?!#\d+ ))(.*)")
"""A line that a program printed: in BuildKit's output with the number of its step and a time in seconds."""
_STEP = re.compile(r"(?:#\d+ \[(?:.* )?|STEP )(\d+/\d+)(?:\]|:) (RUN|COPY) (?:--mount=\S+\s+)*(.*)")
_UV_STEP = re.compile(r"(?:#\d+ \d+\.\d+ )?((?:Downloading|Building|Resolved|Prepared|Installed|Bytecode compiled) .*)")


def progress(line: str) -> str | None:
    """Return what to show of one line of a build's output, or None."""
    step = _STEP.match(line)
    if step:
        return f"step {step[1]}: {step[2]} {one_line(step[3], 60)}"
    uv_step = _UV_STEP.match(line)
    return uv_step[1] if uv_step else None


def _check_room(client: DockerClient, base: Base, recipe: Recipe, note: Note) -> None:
    """Raise MachineError if a build would run out of disk."""
    needed = _ROOM_FOR_TOOLS + ROOM_PER_WHEEL_BYTE * (wheel_bytes(recipe.lock) or 0)
    free = _free_bytes(client, base)
    if free is None:
        note("free space on the engine's disk is unknown")
    elif free < needed:
        raise MachineError(
            f"the engine's disk has {size(free)} free, and building on {recipe.image} takes up to {size(needed)}; "
            "free some: casebook images --remove-unused (images that no case uses), docker builder prune (downloads)"
        )


def _free_bytes(client: DockerClient, base: Base) -> int | None:
    """Ask a container: that works for an engine on another machine too."""
    command = ["df", "--block-size=1", "--output=avail", "/"]
    with suppress(EngineError), speaking("look at the engine's free disk space"):
        container = client.containers.create(
            base.reference, command, network_mode="none", labels={f"{LABEL}.part": "df"}
        )
        try:
            container.start()
            container.wait()
            return int(container.logs().split()[-1])
        finally:
            container.remove(force=True)
    return None
