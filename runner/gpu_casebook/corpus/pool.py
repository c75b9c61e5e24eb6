"""Workers on this machine: processes that stay, each with one job at a time.

Satisfies `gpu_casebook.corpus.workers.Workers`.

They are fresh interpreters, never forks of the driver, in sessions of their own: Ctrl-C reaches the driver alone, which
then tells them. See `gpu_casebook.corpus.serve` for their side.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pickle import UnpicklingError
from typing import Self

from gpu_casebook.corpus.model import Finished, Job, Lost, Settings
from gpu_casebook.corpus.serve import STOP_S, Order, log_path
from gpu_casebook.corpus.workers import Built, Ended, Event, Gone, Gpu, Machine, Said, Start
from gpu_casebook.devices import hardware

WORK = "gpu_casebook.corpus.work:run_job"
_SPARE_S = 1.0
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from gpu_casebook.corpus.serve import serve; serve({pipe}, *sys.argv[1:])"
)


def cores() -> int:
    """How many of this machine's cores this process may use."""
    return len(os.sched_getaffinity(0))


def local_machine(jobs: int | None = None) -> Machine:
    """The machine this runs on, its GPUs as they are now, for `jobs` at once: as many as it has cores, if None."""
    found = [
        Gpu(index=gpu.index, compute_capability=gpu.compute_capability, name=gpu.name, aside=gpu.aside)
        for gpu in hardware.gpus()
    ]
    return Machine(name=socket.gethostname(), cores=jobs or cores(), gpus=tuple(found))


@dataclass(kw_only=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    connection: Connection
    start: Start | None = None
    begun: float = 0.0

    @property
    def job(self) -> Job | None:
        return self.start.job if self.start else None

    def lost(self, after_s: float) -> Lost:
        """Its end, which has been seen."""
        return Lost(worker=self.name, reason=_ending(self.process), after_s=after_s)


class Pool:
    """Processes of this machine. `log` is the directory for what they print; `work` what they run, as "module:name".

    `machine` tells what to share out, and is asked again when a GPU may have been set aside. Once a job found that the
    machine can't go on, nothing is started until all others have ended: it may be one of them that fills the disk.
    """

    def __init__(
        self, settings: Settings, log: Path, machine: Callable[[], Machine] = local_machine, work: str = WORK
    ) -> None:
        self._settings, self._log, self._work = settings, log, work
        self._look = machine
        self._machine: Machine | None = None
        self._workers: dict[Connection, _Worker] = {}
        self._early: list[Event] = []
        self._stopped = False

    def __enter__(self) -> Self:
        self._log.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Every worker is gone within `STOP_S` and a little; at once if that is interrupted too."""
        processes = [worker.process for worker in self._workers.values()]
        for connection in self._workers:
            connection.close()
        self._workers.clear()
        _end(processes, STOP_S + _SPARE_S)

    @property
    def machines(self) -> Sequence[Machine]:
        if self._machine is None:
            self._machine = self._look()
        busy = sum(worker.start is not None for worker in self._workers.values())
        self._stopped = self._stopped and busy > 0
        return [replace(self._machine, cores=busy) if self._stopped else self._machine]

    def start(self, start: Start) -> str:
        name = self._free_name()
        try:
            worker = self._idle() or self._spawn(name)
        except OSError as error:
            reason = f"no process could be started: {error.strerror or error}"
            self._early.append(Gone(job=start.job, lost=Lost(worker=name, reason=reason, after_s=0.0)))
            return name
        worker.start, worker.begun = start, time.monotonic()
        with suppress(OSError):  # it has died: `events` will see that
            worker.connection.send(Order(start.job, tuple(start.gpus), start.builds))
        return worker.name

    def events(self, within_s: float) -> Sequence[Event]:
        early, self._early = self._early, []
        ready = wait(self._workers, 0 if early else within_s)
        return early + [event for connection in ready for event in self._read(self._workers[connection])]  # type: ignore[index]

    def _read(self, worker: _Worker) -> list[Event]:
        """What came from a worker; whatever can't be read, such as half a message, was its last."""
        events: list[Event] = []
        try:
            while worker.connection.poll():
                events += self._understood(worker, worker.connection.recv())
        except (EOFError, OSError, UnpicklingError):
            events += self._buried(worker)
        return events

    def _understood(self, worker: _Worker, message: str | Finished | None) -> list[Event]:
        start = worker.start
        if start is None:
            return []
        if isinstance(message, str):
            return [Said(worker=worker.name, job=start.job, text=message)]
        self._released(worker)
        if message is None:
            return [Built(job=start.job, after_s=time.monotonic() - worker.begun)]
        self._stopped |= message.stops
        return [Ended(finished=message.model_copy(update={"worker": worker.name, "job": start.job}))]

    def _buried(self, worker: _Worker) -> list[Event]:
        del self._workers[worker.connection]
        worker.connection.close()
        _end([worker.process], _SPARE_S)
        job = worker.job
        if job is None:
            return []
        self._released(worker)
        return [Gone(job=job, lost=worker.lost(time.monotonic() - worker.begun))]

    def _released(self, worker: _Worker) -> None:
        if worker.start and worker.start.gpus:
            self._machine = None
        worker.start = None

    def _idle(self) -> _Worker | None:
        """One that lives: what ended while it had nothing to do is no loss to the next job."""
        free = (worker for worker in self._workers.values() if worker.start is None)
        return next((worker for worker in free if worker.process.poll() is None), None)

    def _free_name(self) -> str:
        taken = {worker.name for worker in self._workers.values()}
        return next(name for number in range(1, len(taken) + 2) if (name := f"w{number}") not in taken)

    def _spawn(self, name: str) -> _Worker:
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs, log_path(self._log, name).open("ab") as log:
            program = _PROGRAM.format(path=sys.path, pipe=theirs.fileno())
            process = subprocess.Popen(
                [sys.executable, "-c", program, self._settings.model_dump_json(), self._work],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
            worker = _Worker(name=name, process=process, connection=Connection(ours.detach()))
        self._workers[worker.connection] = worker
        return worker


def _end(processes: Sequence[subprocess.Popen[bytes]], within_s: float) -> None:
    """Their pipes are closed, so they should end by themselves."""
    deadline = time.monotonic() + within_s
    try:
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _ending(process: subprocess.Popen[bytes]) -> str:
    status = process.returncode
    if status == -signal.SIGKILL:
        return "it was killed: by somebody, or by the kernel when memory ran out"
    if status is not None and status < 0:
        return f"it ended with {signal.Signals(-status).name}"
    return f"it ended with exit status {status}"
