"""A lock's wheels for a host without a network: fetched here, and installed from there."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpu_casebook.errors import UsageError
from gpu_casebook.packages import sources, wheels
from gpu_casebook.packages.lock import read_lock, without
from gpu_casebook.pins import SOURCES
from gpu_casebook.trial import Note, Recipe

LOCKED = "locked"
_FILES = "sources"

_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


def refuse_sources(recipe: Recipe) -> None:
    """Raise UsageError for an environment with packages that must be built: their code would run on this machine."""
    if build := read_lock(recipe.lock).special.build:
        raise UsageError(f"{', '.join(build)}: built from source, which is done in images alone; use --engine docker")


def pack(recipes: Mapping[str, Recipe], into: Path, note: Note) -> None:
    """Fetch the wheels of these locks, by their files' names, to a directory below `into`. Raises BuildError."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, recipe in recipes.items():
            refuse_sources(recipe)
            lock = Path(scratch, name)
            lock.write_text(without(recipe.lock, [SOURCES]), encoding="utf-8")
            sources.pack(recipe.sources, into / _FILES)
            wheels.download_lock(lock, recipe.python, into / LOCKED, note)


def take_in(packed: Path) -> None:
    """From here on uv looks at the wheels that were packed and nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name in _INDEXES]:
        del os.environ[name]
    for path in (packed / _FILES).glob("*"):
        sources.keep(path.read_bytes())
    os.environ |= {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(packed / LOCKED),
        "UV_PYTHON_DOWNLOADS": "never",
    }
