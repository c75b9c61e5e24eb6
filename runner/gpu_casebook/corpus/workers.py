"""Whoever runs jobs, as the driver sees them: processes of this machine (`pool`), or those of a fleet (`fleet`).

The driver asks `gpu_casebook.corpus.order` what to start where, starts it, and waits for events:

    with pool.Pool(settings, jobs=2, log=run_directory / "logs") as workers:
        while left or running:
            for start in order.choose(order.ranked(left), running, workers.machines, prepared):
                worker = workers.start(start)
            for event in workers.events(within_s=1.0):
                ...

On a worker a job is `gpu_casebook.corpus.work.run_job(start.job, settings, console, start.gpus, builds=start.builds)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self

from gpu_casebook.corpus.model import End, Finished, Job, Lost

ATTEMPTS = 3
"""How many workers one job may lose: it may be what kills them."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of a machine, by the index that the driver of NVIDIA gives it. `aside` says why it is not to be used."""

    index: int
    compute_capability: str = ""
    name: str = ""
    aside: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What jobs share: they are started as long as `cores` and `gpus` last. `cores` is also the most jobs at once."""

    name: str
    cores: int
    gpus: Sequence[Gpu] = ()


@dataclass(frozen=True, kw_only=True)
class Start:
    """One job is to run on this machine with these GPUs (as many as it asks for, by index). Also what runs now.

    `builds`: only its environment is to be prepared there, without a GPU; then `Built` follows in place of `Ended`.
    """

    job: Job
    machine: str
    gpus: Sequence[int] = ()
    builds: bool = False


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
    """What a job was started to build is there, after so many seconds. The job itself is still to be run."""

    job: Job
    after_s: float


@dataclass(frozen=True, kw_only=True)
class Gone:
    """A worker went away, and what it did has to be done again. Its place is taken by another one."""

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
        """Have a job run; the name of the worker that does it. One job is started once until its event came.

        It never waits for a free worker, and raises nothing about the job: an `Ended`, a `Built` or a `Gone` follows
        each start.
        """

    def events(self, within_s: float) -> Sequence[Event]:
        """What happened since the last call, in order; waits for the first event at most `within_s` seconds."""


def given_up(job: Job, lost: Sequence[Lost]) -> Finished:
    """The end of a job that lost its last worker: its own result, so that the rest goes on."""
    last = lost[-1]
    return Finished(
        job=job,
        end=End.BROKE,
        reason=f"{len(lost)} workers were lost with it, the last: {last.worker}: {last.reason}",
        worker=last.worker,
        lost=list(lost),
        started=datetime.now(UTC),
        duration_s=sum(each.after_s for each in lost),
    )
