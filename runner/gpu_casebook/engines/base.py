"""What an engine is: it prepares an environment, runs trials in it, and leaves nothing behind.

An engine lives in a folder of its own and is registered in `gpu_casebook.engines.registry`; nothing else names it.
Every engine passes the conformance suite in tests/engines.
"""

import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from failure_signature.result import TrialResult
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest

Packed = Sequence[tuple[ImageFacts, Sequence[str]]]  # images, each with the keys of its layers, the lowest first

# What every trial gets, whichever engine runs it.
VARIABLES = {
    "USER": "case",
    "LOGNAME": "case",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",  # a trial that is ended by its timeout has printed what it had to print
    "PYTHONDONTWRITEBYTECODE": "1",
    # NumPy's OpenBLAS starts a thread per core when it is imported, and each spins for 2**28 ticks (0.1 s) before it
    # sleeps: with 16 cores that is as much processor time as the import of torch. What they compute stays the same.
    "OPENBLAS_THREAD_TIMEOUT": "20",  # 2**20 ticks: github.com/OpenMathLib/OpenBLAS/issues/5171
    # Inductor starts a process that imports torch once more and forks a compiler per core. For a few kernels that costs
    # more than to compile them in the process that wants them, as is done now.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An environment that is ready for trials."""

    key: str  # equal keys, equal content: every file of it
    python: str  # path of the Python inside the environment
    image: ImageFacts | None = None


class Engine(Protocol):
    """Where trials run. Use it as a context manager: at its end it removes all that its trials left behind.

    Engines subclass this. The methods here are defaults: they refuse what an engine can't do.
    """

    name: str  # as in the registry
    isolation: Sequence[str]  # what confines a trial here, as short sentences for the report
    caveat: str = ""  # a warning, shown if this engine is used because a better one does not answer

    # What this kind of engine can do; known before it is connected.
    has_images: bool = False  # trials run in images: one can be named
    takes_over: bool = False  # packages can be put over an environment (`Recipe.over`)
    uses_host_python: bool = False  # environments are made here with uv, for this host's platform and Python

    @classmethod
    def connect(cls, root: Path) -> Self:
        """Return the engine, for cases of the checkout `root`. Raises EngineError where it does not answer."""
        raise NotImplementedError

    @property
    def local(self) -> bool:
        """Whether trials run on this machine: a daemon may be elsewhere."""
        return True

    @property
    def machine(self) -> str:
        """Architecture of the machine on which trials run, as `uname -m` has it."""
        return platform.machine()

    @property
    def version(self) -> str:
        """Engine and version, such as "Docker 20.10.24"."""
        raise NotImplementedError

    @property
    def storage(self) -> Path | None:
        """Directory of this machine whose disk environments take; None where they lie elsewhere."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def gpu_access(self) -> GpuAccess | None:
        """Return how a trial gets at a GPU here; None where it can't."""
        return None

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        """Make the environment ready, unless it is ready already.

        Raises BuildError, EngineError, or MachineError where the disk is too full.
        """
        raise NotImplementedError

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        """Return the recipes whose environment `prepare` would have to build."""
        raise NotImplementedError

    def forget(self, prepared: Prepared) -> None:
        """Remove an environment that a throw-away engine has made. Images stay, because others may share them."""
        return

    def throwaway(self) -> AbstractContextManager["Engine"]:
        """Return an engine of this kind that removes its environments at its end, unless others can use them."""
        return nullcontext(self)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """Run one trial to its end. If it changed a file of its environment, the result is `infra`.

        Several threads may call this at once. Raises EngineError if the engine goes away meanwhile. On
        KeyboardInterrupt, the trial's processes have ended when the exception leaves this call.
        """
        raise NotImplementedError

    def end_trials(self) -> None:
        """End the trials that other threads run now: their `run` returns or raises soon. By default they run on."""
        return

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        """Remove what runs that were killed left behind; return a line for each thing that is removed, or would be."""
        return ()

    def discard_unused(self, wanted: Iterable[Recipe], *, dry_run: bool = False) -> Sequence[str]:
        """Remove environments that none of these recipes asks for, but no images. Return lines as `sweep` does."""
        return ()

    def image_id(self, name: str) -> str | None:
        """Return the id of the image of this name; None where there is none."""
        return None

    def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note, has: Collection[str]) -> Packed:
        """Write what `prepare` needs on a host without a network to the directory `into`; return the packed images.

        `recipes` are named by their locks. Layers whose keys are in `has` are left out. Raises what `prepare` raises.
        """
        raise UsageError(f"the {self.name} engine can't be packed for a host without a network")

    def take_in(self, packed: Path, note: Note) -> None:
        """Make what `pack` wrote to the directory `packed` ready for `prepare`."""
        return
