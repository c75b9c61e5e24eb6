"""Which engines there are, and which one runs the trials: the one that is named, or the best that answers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from gpu_casebook import plugins
from gpu_casebook.errors import EngineError, UsageError

if TYPE_CHECKING:
    from gpu_casebook.engines.base import Engine

# The best one first; venv always answers, so those that plug-ins bring are used by name alone.
# A class is imported once it is needed: the Docker SDK alone takes a quarter of a second.
ENGINES = {
    "docker": "gpu_casebook.engines.docker.engine:DockerEngine",
    "podman": "gpu_casebook.engines.podman.engine:PodmanEngine",
    "venv": "gpu_casebook.engines.venv.engine:VenvEngine",
}

# Entry points of plug-ins that add engines.
GROUP = "gpu_casebook.engines"


def kind(name: str) -> "type[Engine]":
    """Return the class of an engine. Raises UsageError where there is none of this name."""
    engines = ENGINES if name in ENGINES else ENGINES | plugins.find(GROUP)
    if name not in engines:
        nearest = get_close_matches(name, engines, n=1)
        meant = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise UsageError(f"no engine {name!r}{meant}; there are: {', '.join(engines)}")
    found: type[Engine] = resolve_name(engines[name])
    return found


def capable(capability: str) -> str:
    """Return the name of the first engine that has this capability, such as "has_images"."""
    return next(name for name in ENGINES if getattr(kind(name), capability))


def choose(name: str | None, root: Path, say: Callable[[str], None]) -> "Engine":
    """Return the engine of this name, or else the first that answers; then `say` is told which and why.

    What runs that were killed left on it is removed. `root` is the checkout, which has the images. Raises UsageError
    for an engine that does not exist, and EngineError where none answers.
    """
    engine = kind(name).connect(root) if name else _best(root, say)
    for line in engine.sweep():
        say(f"left by a run that was killed: {line}")
    return engine


def _best(root: Path, say: Callable[[str], None]) -> "Engine":
    missing = []
    for name in ENGINES:
        try:
            engine = kind(name).connect(root)
        except EngineError as error:
            missing.append(str(error))
            continue
        named = f"{name}, {engine.caveat}" if engine.caveat else name
        say(f"engine: {named} ({missing[0] if missing else engine.version})")
        return engine
    raise EngineError("; ".join(missing))


def reachable(root: Path) -> "Sequence[Engine]":
    """Return every engine that answers here."""
    engines = []
    for name in dict.fromkeys([*ENGINES, *plugins.find(GROUP)]):
        with suppress(EngineError):
            engines.append(kind(name).connect(root))
    return engines
