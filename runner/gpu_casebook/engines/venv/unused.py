"""Disk that environments leave behind: packages and bytecode that no environment is linked to any more."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from gpu_casebook.packages import uv


def prune(store: Path, shelf: Path) -> int:
    """Remove what no environment is linked to; return how many bytes that frees.

    A package goes with all its versions, as uv has it: those that environments have stay there, and are fetched again
    for the next one. uv waits until nobody installs from the store.
    """
    unlinked = [path for path in store.glob("archive-v*/*") if all(links == 1 for links, _ in _files(path))]
    freed = sum(map(own_bytes, unlinked))
    if names := {info.name.partition("-")[0] for path in unlinked for info in path.glob("*.dist-info")}:
        uv.forget(sorted(names), store)
    for compiled in shelf.glob("*/*"):
        if own := own_bytes(compiled):
            freed += own
            compiled.unlink(missing_ok=True)
    return freed


def own_bytes(path: Path) -> int:
    """Return how many bytes go with this file or directory: of files that stand nowhere else."""
    return sum(size for links, size in _files(path) if links == 1)


def _files(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the links and the size of each file."""
    paths: Iterable[Path] = path.rglob("*") if path.is_dir() else [path]
    for each in paths:
        with suppress(FileNotFoundError):
            if each.is_symlink() or not each.is_dir():
                seen = each.lstat()
                yield seen.st_nlink, seen.st_size
