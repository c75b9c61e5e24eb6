"""Workers on this machine: processes that stay, each with one job at a time. Satisfies `events.Workers`.

They are fresh interpreters, never forks of the driver, in sessions of their own: Ctrl-C reaches the driver alone, which
then hangs up on them. See `casebook_workbench.corpus.worker` for their side.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import IO, Self

from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.model import Settings
from casebook_workbench.corpus.worker import STOP_S

WORK = "casebook_workbench.corpus.jobs:run_job"
SPARE_S = 1.0


class WorkerProcess:
    """One worker, which does `work`, and prints to `log`. Raises OSError."""

    def __init__(self, work: str, *, name: str = "", log: IO[bytes] | None = None) -> None:
        self.name = name
        self.start: Start | None = None
        self.socket, its_end = Pipe()
        with its_end:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "casebook_workbench.corpus.worker", work, str(its_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[its_end.fileno()],
                start_new_session=True,
            )

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def begin(self, start: Start, settings: Settings) -> None:
        self.start = start
        with suppress(OSError):  # it has died: the next event says so
            for order in (settings, start):
                self.socket.send_bytes(order.model_dump_json().encode())

    def event(self) -> Event:
        """Return what its job came to, or does now; wait for it. A worker that is gone has ended when this returns."""
        try:
            event = Event.model_validate_json(self.socket.recv_bytes())
        except (EOFError, OSError):
            end_all([self], SPARE_S)
            event = Event(job=self.start.job.name if self.start else "", lost=self._ending())
        if event.said is None:
            self.start = None
        return event.model_copy(update={"worker": self.name})

    def _ending(self) -> str:
        status = self.process.returncode
        if status == -signal.SIGKILL:
            return "it was killed: by somebody, or by the kernel when memory ran out"
        if status < 0:
            return f"it ended with {signal.Signals(-status).name}"
        return f"it ended with exit status {status}"


def end_all(workers: Iterable[WorkerProcess], within_s: float) -> None:
    """Tell these workers to interrupt their jobs and end; kill them after that time, or if this is interrupted too."""
    ending, deadline = list(workers), time.monotonic() + within_s
    for worker in ending:
        worker.socket.close()  # which tells it to end
    try:
        with suppress(subprocess.TimeoutExpired):
            for worker in ending:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in ending:
            worker.process.kill()
        for worker in ending:
            worker.process.wait()


class Pool:
    """Processes of this machine. `log` is the directory for what they print; `work` what they run, as "module:name".

    `machine` tells what to share out, and is asked again when a GPU may have been set aside. Once a job found that the
    machine can't go on, nothing is started until all others have ended: it may be one of them that fills the disk.
    """

    def __init__(self, settings: Settings, log: Path, machine: Callable[[], Machine], work: str = WORK) -> None:
        self._settings, self._log, self._work = settings, log, work
        self._look = machine
        self._machine: Machine | None = None
        self._workers: dict[str, WorkerProcess] = {}
        self._early: list[Event] = []
        self._stopped = False

    def __enter__(self) -> Self:
        self._log.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End every worker, within `STOP_S` and a little."""
        workers, self._workers = self._workers, {}
        end_all(workers.values(), STOP_S + SPARE_S)

    @property
    def machines(self) -> Sequence[Machine]:
        if self._machine is None:
            self._machine = self._look()
        busy = sum(worker.start is not None for worker in self._workers.values())
        self._stopped = self._stopped and busy > 0
        return [replace(self._machine, cores=busy) if self._stopped else self._machine]

    def start(self, start: Start) -> str:
        # What died while it had nothing to do is no loss to this job.
        idle = (worker for worker in self._workers.values() if worker.start is None and worker.lives)
        numbers = range(1, len(self._workers) + 2)
        name = next(name for number in numbers if (name := f"w{number}") not in self._workers)
        try:
            worker = next(idle, None) or self._spawn(name)
        except OSError as error:
            reason = f"no process could be started: {error.strerror or error}"
            self._early.append(Event(job=start.job.name, worker=name, lost=reason))
            return name
        worker.begin(start, self._settings)
        return worker.name

    def _spawn(self, name: str) -> WorkerProcess:
        with (self._log / f"{name}.log").open("ab") as log:
            worker = self._workers[name] = WorkerProcess(self._work, name=name, log=log)
        return worker

    def events(self, within_s: float) -> Sequence[Event]:
        events, self._early = self._early, []
        with_news = connection.wait([each.socket for each in self._workers.values()], 0 if events else within_s)
        for worker in [each for each in self._workers.values() if each.socket in with_news]:
            start, event = worker.start, worker.event()
            if event.lost is not None:
                del self._workers[worker.name]
            if start is None:
                continue  # it died while it had nothing to do
            events.append(event)
            if start.gpus and worker.start is None:
                self._machine = None
            self._stopped |= event.finished is not None and event.finished.stops
        return events
