"""A worker process: runs the jobs that come on its standard input, one after the other, until that is closed.

`python -m gpu_casebook.corpus.worker MODULE:NAME`. Orders and messages are lines of JSON, on what it was given as
standard input and output; whatever else is printed goes to standard error. When the driver closes the pipe, or dies,
the job is interrupted and cleans up, and the process ends within `STOP_S` whatever the job does.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from queue import SimpleQueue
from typing import IO, Protocol

from gpu_casebook.console import Console
from gpu_casebook.corpus.model import End, Finished, Job, Settings
from gpu_casebook.document import Document

STOP_S = 8.0
"""How long an interrupted job may clean up. Less than nox gives the whole runner."""


class Order(Document):
    """What a worker is to do next."""

    job: Job
    settings: Settings
    gpus: Sequence[int] = ()
    builds: bool = False


class Message(Document):
    """What a worker does now, or how its job ended; neither where it was to build an environment that is there now."""

    said: str | None = None
    finished: Finished | None = None


class Work(Protocol):
    """What a worker does: `gpu_casebook.corpus.jobs.run_job`. None: what the job was to build is there."""

    def __call__(
        self, job: Job, settings: Settings, console: Console, gpus: Sequence[int], *, builds: bool
    ) -> Finished | None: ...


def main(work: str) -> None:
    """Be a worker, which does what `work` names as "module:name"."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a shell has background jobs ignore it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # Ray's processes have it blocked
    orders, messages = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    waiting: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(orders, waiting), daemon=True).start()
    module, _, name = work.partition(":")
    with suppress(KeyboardInterrupt, BrokenPipeError):
        _work(waiting, messages, getattr(import_module(module), name))
    os._exit(0)  # not held up by threads that a library left


def _listen(orders: Iterable[bytes], waiting: "SimpleQueue[bytes]") -> None:
    """Take orders until the driver hangs up; then end this process, with some time to clean up."""
    for line in orders:
        waiting.put(line)
    waiting.put(b"")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(STOP_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _work(waiting: "SimpleQueue[bytes]", messages: IO[bytes], work: Work) -> None:
    def send(message: Message) -> None:
        messages.write(message.model_dump_json(exclude_defaults=True).encode() + b"\n")
        messages.flush()

    console = Console(tell=lambda text: send(Message(said=text)))
    while line := waiting.get():
        order = Order.model_validate_json(line)
        print(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {order.job.name}", flush=True)
        send(Message(finished=_finished(order, console, work)))


def _finished(order: Order, console: Console, work: Work) -> Finished | None:
    started, begun = datetime.now(UTC), time.monotonic()
    try:
        return work(order.job, order.settings, console, order.gpus, builds=order.builds)
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is: the next job is to run
        return Finished(
            job=order.job,
            end=End.BROKE,
            reason=f"the runner failed: {type(error).__name__}: {error}",
            started=started,
            duration_s=time.monotonic() - begun,
        )


if __name__ == "__main__":
    main(sys.argv[1])
