"""Images for a host without a network: saved to one compressed file here, and loaded from it there."""

import json
import os
import posixpath
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, cast

from failure_signature.text import size
from gpu_casebook.daemon.client import DockerClient, load, save, speaking
from gpu_casebook.engines.base import Packed
from gpu_casebook.images import build
from gpu_casebook.trial import Note, Recipe

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

IMAGES = "images.tar.zst"

PATIENCE_S = 3600  # the daemon is silent while it gathers or takes in gigabytes
_BLOCK = 2**20
_LEVEL = 3


def pack(
    client: DockerClient, root: Path, recipes: Iterable[Recipe], into: Path, note: Note, *, has: Collection[str]
) -> Packed:
    """Write the recipes' images to the directory `into`, built where they are not there yet.

    Each layer is in it once, and none that `has` names (`chains`).
    """
    images = build.build_all(client, root, recipes, note)
    pieces = save(client, [image.name for image in images])
    with _squeezed(into / IMAGES) as file:
        if has:
            with tempfile.TemporaryFile(dir=into) as saved:
                _write(pieces, saved, note, "saving the images")
                saved.seek(0)
                leave_out(saved, has, file)
        else:
            _write(pieces, file, note, "compressing the images")
    with speaking("look at layers"):
        diff_ids = [client.images.get(image.id).attrs["RootFS"]["Layers"] for image in images]
    return [(image, list(chains(each))) for image, each in zip(images, diff_ids, strict=True)]


def take_in(client: DockerClient, packed: Path, note: Note) -> None:
    """Load what `pack` wrote to the directory `packed`. Raises EngineError, or MachineError where the disk is full."""
    load(client, decompressed(packed / IMAGES, note))


def chains(diff_ids: Iterable[str]) -> Iterator[str]:
    """Yield what an engine knows an image's layers by: each as it lies on those below it, the lowest first."""
    chain = ""
    for diff_id in diff_ids:
        chain = f"sha256:{sha256(f'{chain} {diff_id}'.encode()).hexdigest()}" if chain else diff_id
        yield chain


def leave_out(saved: IO[bytes], has: Collection[str], into: IO[bytes]) -> None:
    """Copy an archive of images without the layers that `has` names: an engine that has one does not look for it."""
    with tarfile.open(fileobj=saved) as source, tarfile.open(fileobj=into, mode="w|") as target:
        layers, needed = set[str](), set[str]()
        for image in _json(source, "manifest.json"):
            layers |= set(image["Layers"])
            found = chains(_json(source, image["Config"])["rootfs"]["diff_ids"])
            needed |= {path for path, chain in zip(image["Layers"], found, strict=True) if chain not in has}
        links = {each.name: each.linkname for each in source if each.issym()}  # a layer that lies on different ones
        needed |= {posixpath.normpath(posixpath.join(path, "..", links[path])) for path in needed & links.keys()}
        for member in source:
            if member.name in needed or member.name not in layers:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    return json.load(file) if file else None


def _squeezed(path: Path) -> IO[bytes]:
    threads = os.cpu_count() or 1  # however many there are, the bytes are the same
    level, workers = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.nb_workers
    return cast("IO[bytes]", zstd.open(path, "wb", options={int(level): _LEVEL, int(workers): threads}))


def _write(pieces: Iterable[bytes], file: IO[bytes], note: Note, doing: str) -> None:
    done = 0
    for piece in pieces:
        done += file.write(piece)
        note(f"{doing}: {size(done)}")


def decompressed(path: Path, note: Note) -> Iterator[bytes]:
    done = 0
    with zstd.open(path) as file:
        while block := file.read(_BLOCK):
            yield block
            done += len(block)
            note(size(done))
