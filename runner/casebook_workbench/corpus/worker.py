"""A worker process: runs jobs one after the other, until the driver hangs up or dies.

`python -m casebook_workbench.corpus.worker MODULE:NAME DESCRIPTOR`, where the descriptor is a socket that it inherits.
`Settings` and a `Start` come on it for each job, and `Event`s go back, all as JSON. When the socket is closed, the job
is interrupted and cleans up, and the process ends within `STOP_S` whatever the job does.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue

from casebook_workbench.corpus.events import Event, Start
from casebook_workbench.corpus.model import Finished, Settings
from gpu_casebook.console import Console

STOP_S = 8.0
"""How long an interrupted job may clean up. Less than nox gives the whole runner."""

Work = Callable[[Start, Settings, Console], Finished | None]
"""What a worker does: `casebook_workbench.corpus.jobs.run_job`. None: the environment that was to be built is there."""


def main(work: str, descriptor: int) -> None:
    """Run as a worker, which does what `work` names as "module:name"."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a shell has background jobs ignore it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # Ray's processes have it blocked
    os.set_inheritable(descriptor, False)  # noqa: FBT003 or a trial that outlives this process keeps the socket open
    driver, orders = Connection(descriptor), SimpleQueue[bytes]()
    threading.Thread(target=_listen, args=(driver, orders), daemon=True).start()
    module, _, name = work.partition(":")
    with suppress(KeyboardInterrupt):
        _work(orders, driver, getattr(import_module(module), name))
    os._exit(0)  # not held up by threads that a library left


def _listen(driver: Connection, orders: SimpleQueue[bytes]) -> None:
    """Take orders until the driver hangs up; then end this process, with some time to clean up."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(driver.recv_bytes())
    orders.put(b"")
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(STOP_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _work(orders: SimpleQueue[bytes], driver: Connection, work: Work) -> None:
    def send(event: Event) -> None:
        # A driver that hung up wants no news, and a job that cleans up after that must not fail for it.
        with suppress(OSError):
            driver.send_bytes(event.model_dump_json(exclude_defaults=True).encode())

    while settings := orders.get():
        start = Start.model_validate_json(orders.get())
        job = start.job.name
        print(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {job}", flush=True)
        console = Console(tell=lambda text, job=job: send(Event(job=job, said=text)))  # type: ignore[misc]
        finished = work(start, Settings.model_validate_json(settings), console)
        sys.stdout.flush()
        send(Event(job=job, finished=finished))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
