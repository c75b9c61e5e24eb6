"""Between the driver of a run and its workers: processes of this machine (`pool`), or those of a fleet (`fleet`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from gpu_casebook.corpus.model import Finished, Job, Lost
from gpu_casebook.devices.hardware import HostGpu


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What jobs share: they are started as long as `cores` and `gpus` last."""

    name: str
    cores: int
    """The most jobs at once."""
    gpus: Sequence[HostGpu] = ()


@dataclass(frozen=True, kw_only=True)
class Start:
    """A job that is to run; used for pending and running ones."""

    job: Job
    gpus: Sequence[int] = ()
    """As many as it asks for, by index. In a fleet only their number counts."""
    builds: bool = False
    """Only its environment is to be prepared, without a GPU; then `Built` follows in place of `Ended`."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a worker does right now, as one line for the table."""

    worker: str
    job: Job
    text: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job came to its end, whatever that is. `finished.worker` is set, and `finished.lost` is left to the driver."""

    finished: Finished


@dataclass(frozen=True, kw_only=True)
class Built:
    """The environment that a job was started to build is there. The job itself is still to be run."""

    job: Job
    after_s: float


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A worker went away, and its job has to be done again. Its place is taken by another one."""

    job: Job
    lost: Lost


Event = Said | Ended | Built | Gone


class Workers(Protocol):
    """Use as a context manager: leaving it ends every worker, and what its job has running, within a bound.

    Not for several threads.
    """

    @property
    def machines(self) -> Sequence[Machine]:
        """What there is now: a machine of a fleet may go, and a GPU may be set aside, while the run goes on."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def start(self, start: Start) -> str:
        """Have a job run; return the name of the worker that does it.

        It never waits for a free worker, and raises nothing about the job: an `Ended`, a `Built` or a `Gone` follows
        each start.
        """

    def events(self, within_s: float) -> Sequence[Event]:
        """Return what happened since the last call, in order; wait for the first event at most `within_s` seconds."""
