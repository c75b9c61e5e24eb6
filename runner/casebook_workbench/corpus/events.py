"""Between the driver of a run and its workers: processes of this machine (`pool`), or those of a fleet (`fleet`).

A `Start` goes to a worker, and `Event`s come back. Both are documents, since they travel as JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from casebook_workbench.corpus.model import Finished, Job
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.document import Document


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What jobs on one machine share: jobs are started as long as `cores` and `gpus` last."""

    name: str
    cores: int
    """The most jobs at once."""
    gpus: Sequence[HostGpu] = ()


class Start(Document):
    """An order to a worker to run a job."""

    job: Job
    gpus: Sequence[int] = ()
    """As many as it asks for, by index. In a fleet only their number counts."""
    builds: bool = False
    """Only prepare its environment, without a GPU. The job itself is started again afterwards."""


class Event(Document):
    """News of a started job: one of `said`, `lost` and `finished`; without any, the environment it built is there."""

    job: str
    """Its name."""
    worker: str = ""
    said: str | None = None
    """What the worker does right now, as one line for the table. Every other event is the last one of a start."""
    lost: str | None = None
    """Why the worker went away. The job has to be done again; another worker takes the place of this one."""
    finished: Finished | None = None
    """How the job ended. `worker` and `lost` in it are left to the driver."""


class Workers(Protocol):
    """Use as a context manager: leaving it ends every worker, and what its job has running, within a bound.

    Not for several threads.
    """

    @property
    def machines(self) -> Sequence[Machine]:
        """Return the machines there are now: one may leave a fleet, and a GPU may be set aside, during a run."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def start(self, start: Start) -> str:
        """Start a job; return the name of the worker that runs it.

        Never waits for a free worker, and raises nothing about the job: its events say how it went.
        """

    def events(self, within_s: float) -> Sequence[Event]:
        """Return what happened since the last call, in order; wait for the first event at most `within_s` seconds."""
