"""Workers on this machine: processes that stay, each with one job at a time. Satisfies `events.Workers`.

They are fresh interpreters, never forks of the driver, in sessions of their own: Ctrl-C reaches the driver alone, which
then hangs up on them. See `gpu_casebook.corpus.worker` for their side.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Self

from pydantic import ValidationError

from gpu_casebook.corpus.events import Built, Ended, Event, Gone, Machine, Said, Start
from gpu_casebook.corpus.model import Lost, Settings
from gpu_casebook.corpus.worker import STOP_S, Message, Order
from gpu_casebook.devices import hardware

News = SimpleQueue[tuple["WorkerProcess", Message | None]]
"""What workers say, each with the worker itself. None is the last of a worker, whose process has ended or will."""
WORK = "gpu_casebook.corpus.jobs:run_job"
SPARE_S = 1.0


def cores() -> int:
    """Return how many of this machine's cores this process may use."""
    return len(os.sched_getaffinity(0))


def local_machine(jobs: int | None = None) -> Machine:
    """Return this machine, its GPUs as they are now, for `jobs` at once: as many as it has cores, if None."""
    return Machine(name=socket.gethostname(), cores=jobs or cores(), gpus=hardware.gpus())


class WorkerProcess:
    """One worker, which does `work`, and prints to `log`. Raises OSError."""

    def __init__(self, work: str, news: News, *, name: str = "", log: IO[bytes] | None = None) -> None:
        self.name = name
        self.start: Start | None = None
        self.begun = 0.0
        self._news = news
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpu_casebook.corpus.worker", work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def after_s(self) -> float:
        return time.monotonic() - self.begun

    def begin(self, start: Start, settings: Settings) -> None:
        self.start, self.begun = start, time.monotonic()
        order = Order(job=start.job, settings=settings, gpus=start.gpus, builds=start.builds)
        assert self._process.stdin
        with suppress(OSError):  # it has died: its last news says so
            self._process.stdin.write(order.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                try:
                    self._news.put((self, Message.model_validate_json(line)))
                except ValidationError:  # half a message was its last
                    break
        self._news.put((self, None))

    def hang_up(self) -> None:
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()

    def end(self, deadline: float) -> None:
        """Wait until it has ended by itself, as it was hung up on; kill it then, or when that is interrupted."""
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self._process.kill()
            self._process.wait()

    def ending(self) -> str:
        """Return how it ended, which it has."""
        status = self._process.returncode
        if status == -signal.SIGKILL:
            return "it was killed: by somebody, or by the kernel when memory ran out"
        if status < 0:
            return f"it ended with {signal.Signals(-status).name}"
        return f"it ended with exit status {status}"


def end_all(workers: Iterable[WorkerProcess], within_s: float) -> None:
    """Have these workers interrupt their jobs and end; all at once if that is interrupted too."""
    ending, deadline = list(workers), time.monotonic() + within_s
    for worker in ending:
        worker.hang_up()
    try:
        for worker in ending:
            worker.end(deadline)
    except BaseException:
        for worker in ending:
            worker.end(0.0)
        raise


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
        self._workers: dict[str, WorkerProcess] = {}
        self._news: News = SimpleQueue()
        self._early: list[Event] = []
        self._stopped = False

    def __enter__(self) -> Self:
        self._log.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Every worker is gone within `STOP_S` and a little."""
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
            self._early.append(Gone(job=start.job, lost=Lost(worker=name, reason=reason, after_s=0.0)))
            return name
        worker.begin(start, self._settings)
        return worker.name

    def _spawn(self, name: str) -> WorkerProcess:
        with log_path(self._log, name).open("ab") as log:
            worker = self._workers[name] = WorkerProcess(self._work, self._news, name=name, log=log)
        return worker

    def events(self, within_s: float) -> Sequence[Event]:
        events, self._early = self._early, []
        with suppress(Empty):
            events += self._understood(*self._news.get(timeout=0 if events else within_s))
            while True:
                events += self._understood(*self._news.get_nowait())
        return events

    def _understood(self, worker: WorkerProcess, message: Message | None) -> list[Event]:
        if message is None:
            del self._workers[worker.name]
            end_all([worker], SPARE_S)
        start = worker.start
        if start is None:
            return []
        if message and message.said is not None:
            return [Said(worker=worker.name, job=start.job, text=message.said)]
        worker.start = None
        if start.gpus:
            self._machine = None
        if message is None:
            return [Gone(job=start.job, lost=Lost(worker=worker.name, reason=worker.ending(), after_s=worker.after_s))]
        if message.finished is None:
            return [Built(job=start.job, after_s=worker.after_s)]
        self._stopped |= message.finished.stops
        return [Ended(finished=message.finished.model_copy(update={"worker": worker.name, "job": start.job}))]


def log_path(directory: Path, worker: str) -> Path:
    """Return where a worker's output goes."""
    return directory / f"{worker}.log"
