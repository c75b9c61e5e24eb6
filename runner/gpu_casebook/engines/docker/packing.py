"""Images for a host without a network: saved to one compressed file here, and loaded from it there."""

import gzip
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from gpu_casebook.daemon.client import connect, load, save
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import build
from gpu_casebook.text import size
from gpu_casebook.trial import Note, Recipe

IMAGES = "images.tar.gz"

_PATIENCE_S = 3600  # the daemon is silent while it gathers or takes in gigabytes
_PIECE = 16 * 2**20
# Of an image of 452 MB, on one core: gzip -1 34 % at 97 MB/s, gzip -6 30 % at 17 MB/s, xz -0 25 % at 12 MB/s,
# xz -1 23 % at 7 MB/s; and xz takes three times as long to unpack. All in all gzip -1 is sooner there unless the
# network is slower than 1.5 MB/s.
_LEVEL = 1


def pack(root: Path, recipes: Iterable[Recipe], into: Path, note: Note) -> list[ImageFacts]:
    """Write the recipes' images to the directory `into`, built where they are not there yet."""
    with closing(connect(_PATIENCE_S)) as client:
        images = build.build_all(client, root, recipes, note)
        squeeze(save(client, [image.name for image in images]), into / IMAGES, note)
    return images


def take_in(packed: Path, note: Note) -> None:
    """Load what `pack` wrote to the directory `packed`. Raises EngineError, or MachineError where the disk is full."""
    with closing(connect(_PATIENCE_S)) as client:
        load(client, _pieces(packed / IMAGES, note))


def _pieces(path: Path, note: Note) -> Iterator[bytes]:
    done = 0
    with gzip.open(path) as file:
        while block := file.read(2**20):
            yield block
            done += len(block)
            note(size(done))


def squeeze(pieces: Iterable[bytes], into: Path, note: Note) -> None:
    """Compress by gzip on all cores, in blocks of their own: any reader of .gz takes them as one file."""
    done, waiting = 0, deque[Future[bytes]]()
    with into.open("wb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        for block in _blocks(pieces):
            waiting.append(pool.submit(gzip.compress, block, _LEVEL, mtime=0))
            done += len(block)
            note(f"compressing the images: {size(done)}")
            if len(waiting) > 2 * (os.cpu_count() or 1):
                file.write(waiting.popleft().result())
        for each in waiting:
            file.write(each.result())


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for piece in pieces:
        block += piece
        while len(block) >= _PIECE:
            yield bytes(block[:_PIECE])
            del block[:_PIECE]
    if block:
        yield bytes(block)
