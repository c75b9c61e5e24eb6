"""A worker process: runs the jobs that come over its pipe, one after the other, until the pipe is closed.

Started by `corpus.pool`, with its output in a log file. The driver closes the pipe, or is dead, which is the
same: then the job is interrupted and cleans up, and the process ends within `STOP_S` whatever the job does.
"""

import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from gpu_casebook.console import Console
from gpu_casebook.corpus.model import End, Finished, Job, Settings

STOP_S = 8.0
"""How long an interrupted job may clean up. Less than nox gives the whole runner."""


class Work(Protocol):
    """What a worker does: `gpu_casebook.corpus.work.run_job`."""

    def __call__(
        self, job: Job, settings: Settings, console: Console, gpus: Sequence[int], *, builds: bool
    ) -> Finished | None:
        """None: what the job was to build is there."""


class Order(NamedTuple):
    """Over the pipe: what to do next. What comes back is a line of text for the table, or what `Work` gave."""

    job: Job
    gpus: Sequence[int]
    builds: bool


def serve(pipe: int, settings: str, work: str) -> None:
    """Be a worker. `pipe` is a file descriptor, `settings` JSON, `work` names a function as "module:name"."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has background jobs ignore it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    connection = Connection(pipe)
    orders: SimpleQueue[Order | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        _work(connection, orders, Settings.model_validate_json(settings), _named(work))
    os._exit(0)  # not held up by threads that a library left


def _named(work: str) -> Work:
    module, _, name = work.partition(":")
    found: Work = getattr(import_module(module), name)
    return found


def _work(connection: Connection, orders: "SimpleQueue[Order | None]", settings: Settings, work: Work) -> None:
    while order := orders.get():
        print(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {order.job.name}", flush=True)
        connection.send(_finished(order, settings, Console(tell=connection.send), work))


def _finished(order: Order, settings: Settings, console: Console, work: Work) -> Finished | None:
    started, begun = datetime.now(UTC), time.monotonic()
    try:
        return work(order.job, settings, console, order.gpus, builds=order.builds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is: the next job is to run
        return Finished(
            job=order.job,
            end=End.BROKE,
            reason=f"the runner failed: {type(error).__name__}: {error}",
            started=started,
            duration_s=time.monotonic() - begun,
        )


def _listen(connection: Connection, orders: "SimpleQueue[Order | None]") -> None:
    """Take orders until the driver hangs up; then end this process, with some time to clean up."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    orders.put(None)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(STOP_S)
    os.kill(os.getpid(), signal.SIGKILL)


def log_path(directory: Path, worker: str) -> Path:
    """Where a worker's output goes."""
    return directory / f"{worker}.log"
