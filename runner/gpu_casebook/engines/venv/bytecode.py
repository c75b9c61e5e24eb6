"""Bytecode of what environments share: a module is compiled once, and linked by every environment that has it.

Compiling PyTorch takes longer than linking its files. A module's bytecode stands on a shelf beside the store of
packages, under the digest of its source and its own: a trial may write to all links of a file, and what was written to
is not handed on.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from gpu_casebook.engines.venv.seal import Seal
from gpu_casebook.packages import uv


def compile_all(directory: Path, installed: Seal, shelf: Path, python: str) -> Seal:
    """Compile an environment's modules for this Python, such as "3.11", or link them; return its seal with them."""
    shelf = shelf / python
    shelf.mkdir(parents=True, exist_ok=True)
    wanted = dict(_wanted(installed, f"cpython-{python.replace('.', '')}"))
    while True:
        linked = _link(directory, wanted, shelf)
        uv.compile_bytecode(directory)
        sealed = Seal.of(directory, installed)
        spoiled = {name: path for name, path in linked.items() if sealed.digest(name) != path.suffix[1:]}
        if not spoiled:
            break
        for name, path in spoiled.items():
            path.unlink(missing_ok=True)
            (directory / name).unlink(missing_ok=True)
    for name in wanted.keys() - linked.keys():
        if digest := sealed.digest(name):
            with suppress(OSError):  # another environment put it there, or it has as many links as a file can have
                os.link(directory / name, shelf / f"{wanted[name]}.{digest}")
    return Seal.of(directory, sealed)  # a link changes a file's times


def _wanted(installed: Seal, tag: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each module's bytecode, and what it stands under: it holds its source's time in seconds."""
    for name, (stamp, digest) in installed.files.items():
        source = PurePosixPath(name)
        if stamp and source.suffix == ".py":
            compiled = str(source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc")
            if compiled not in installed.files:  # a wheel may bring it
                yield compiled, f"{digest}-{stamp[2] // 10**9}"


def _link(directory: Path, wanted: Mapping[str, str], shelf: Path) -> dict[str, Path]:
    """Link what is on the shelf into the environment; return where it stands there, by its path here."""
    there = {path.stem: path for path in shelf.iterdir()}
    linked = {}
    for name, key in wanted.items():
        if key in there:
            with suppress(OSError):  # it may have gone meanwhile: then it is compiled
                (directory / name).parent.mkdir(exist_ok=True)
                os.link(there[key], directory / name)
                linked[name] = there[key]
    return linked
