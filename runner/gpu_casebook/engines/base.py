"""What an engine is: it prepares an environment, runs trials in it, and leaves nothing behind.

Every engine passes the conformance suite in tests/engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from gpu_casebook.evidence import GpuAccess, ImageFacts
from gpu_casebook.trial import EngineName, Note, Recipe, TrialRequest, TrialResult


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An environment that is ready for trials. `key` is its content key: equal keys, equal content."""

    key: str
    python: str
    """Path of the Python inside the environment."""
    image: ImageFacts | None = None
    duration_s: float = 0.0


class Engine(Protocol):
    """Where trials run. Use as a context manager: leaving it removes all that its trials left."""

    name: EngineName

    @property
    def local(self) -> bool:
        """Whether trials run on this machine: a Docker engine may be elsewhere."""

    @property
    def isolation(self) -> Sequence[str]:
        """What holds a trial back here, as short sentences for the report."""

    @property
    def version(self) -> str:
        """Engine and version, such as "Docker 20.10.24"."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def gpu_access(self) -> GpuAccess | None:
        """How a trial gets at a GPU here; None where it can't."""

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        """Make the environment ready, or find it ready.

        Raises BuildError, EngineError, or MachineError where the disk is too full.
        """

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        """Run one trial to its end. Raises EngineError if the engine goes away meanwhile.

        On KeyboardInterrupt the trial's processes are gone when the exception leaves this call.
        """

    def sweep(self) -> Sequence[str]:
        """Remove what runs that were killed left behind; one line for each thing removed."""

    def left(self) -> Sequence[str]:
        """What `sweep` would remove, in its words; nothing is removed."""
