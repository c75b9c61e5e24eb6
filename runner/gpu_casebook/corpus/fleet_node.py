"""A node of a fleet, on its own side: it tells what it is, and runs one job with the case that it was sent.

Loaded there by name, so that each node runs the runner that it has. What goes over the wire is text and bytes: two
revisions of the runner can at least tell each other that they differ.
"""

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field

from gpu_casebook.console import Console
from gpu_casebook.corpus import parcel
from gpu_casebook.corpus.model import Finished, Job, Settings
from gpu_casebook.corpus.workers import Gpu
from gpu_casebook.devices import hardware
from gpu_casebook.document import Document
from gpu_casebook.engines import registry
from gpu_casebook.engines.scratch import scratch, sweep, usual_place
from gpu_casebook.revision import own_revision

if TYPE_CHECKING:
    from gpu_casebook.corpus.serve import Work


class Attested(Document):
    """What a node says of itself. `engines` has each engine that answers there, by name, with its version."""

    host: str
    runner: str
    cores: int
    gpus: list[Gpu] = Field(default_factory=list)
    driver: str | None = None
    engines: dict[str, str] = Field(default_factory=dict)


def _place() -> Path:
    """Where cases that came along lie while they run. Raises MachineError."""
    return usual_place() / "fleet"


def attest() -> str:
    """`Attested` as JSON. Runs on the node, and removes there what jobs left that were killed. Raises MachineError."""
    sweep(_place())
    found = hardware.gpus()
    with tempfile.TemporaryDirectory() as nothing:
        engines = {engine.name: engine.version for engine in registry.reachable(Path(nothing))}
    return Attested(
        host=socket.gethostname(),
        runner=own_revision(),
        cores=len(os.sched_getaffinity(0)),
        gpus=[
            Gpu(index=gpu.index, compute_capability=gpu.compute_capability, name=gpu.name, aside=gpu.aside)
            for gpu in found
        ],
        driver=found[0].driver if found else None,
        engines=engines,
    ).model_dump_json()


def work(
    order: Sequence[str], case: bytes, images: bytes, gpus: Sequence[int], notes: tuple[Any, str], *, builds: bool
) -> tuple[str | None, str | None]:
    """Run a job, and give back its `Finished` and its evidence, both as JSON. Runs on the node.

    `order` holds the job, the settings, and what is to be run as "module:name"; `case` and `images` are archives;
    `gpus` those that the driver chose; `notes` a `Mailbox` for lines of text, and whose they are. With `builds` only
    the environment is prepared, and no `Finished` says that it is there.
    """
    mail, worker = notes

    def tell(text: str) -> None:
        mail.post.remote(worker, text)

    job, settings = Job.model_validate_json(order[0]), Settings.model_validate_json(order[1])
    module, _, name = order[2].partition(":")
    run: Work = getattr(import_module(module), name)
    with interruptible(), scratch(_place()) as place:
        root, reports = place / "checkout", place / "reports"
        for packed in (images, case):
            parcel.unpack(packed, root)
        here = settings.model_copy(update={"root": str(root), "reports": str(reports)})
        finished = run(job, here, Console(tell=tell), given(gpus, assigned(), hardware.gpus()), builds=builds)
        return (finished.model_dump_json(), _evidence(finished, reports)) if finished else (None, None)


def _evidence(finished: Finished, reports: Path) -> str | None:
    return (reports / finished.evidence).read_text(encoding="utf-8") if finished.evidence else None


def assigned() -> Sequence[str]:
    """The GPUs that Ray gave this job: indices or UUIDs."""
    import ray  # noqa: PLC0415 only where there is a fleet

    return [str(each) for each in ray.get_gpu_ids()]


def given(chosen: Sequence[int], assigned: Sequence[str], found: Sequence[hardware.HostGpu]) -> Sequence[int]:
    """The runner's indices of the GPUs that a job gets.

    Those that Ray assigned, since others in the cluster may have the rest. But Ray takes all GPUs of a host for alike:
    where they are not, or one is set aside, those count that the driver chose.
    """
    alike = len({(gpu.name, gpu.compute_capability) for gpu in found}) <= 1
    if not alike or any(gpu.aside for gpu in found):
        return tuple(chosen)
    by_uuid = {gpu.uuid: gpu.index for gpu in found}
    mapped = [int(each) if each.isdecimal() else by_uuid.get(each) for each in assigned]
    if len(mapped) != len(chosen) or None in mapped:
        return tuple(chosen)
    return tuple(index for index in mapped if index is not None)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ray's cancelling reach a main thread that waits for a trial.

    Ray only marks SIGINT as pending, which wakes no system call. The mark is also written to the wake-up descriptor, so
    a thread can read it there and send the signal itself. One alone is let through: the next would break the clean-up.
    Ray's processes also have the signal blocked, which trials should not inherit.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    main = threading.get_ident()
    thread = threading.Thread(target=_ring, args=[theirs, main], daemon=True)
    with ours, theirs:
        handler = signal.signal(signal.SIGINT, _once())
        wakeup = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
        thread.start()
        blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGINT, handler)
            with suppress(OSError):
                theirs.shutdown(socket.SHUT_RDWR)
            thread.join()


def _ring(bell: socket.socket, main: int) -> None:
    with suppress(OSError):
        while number := bell.recv(1):
            if number[0] == signal.SIGINT:
                signal.pthread_kill(main, signal.SIGINT)
                return


def _once() -> Callable[[int, FrameType | None], None]:
    raised = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal raised
        if not raised:
            raised = True
            _interrupt()

    return interrupt


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


class Mailbox:
    """Lines for the driver's table, on their way. An actor, beside the head of the cluster."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def post(self, worker: str, text: str) -> None:
        """Only the newest of each worker is kept."""
        self._lines[worker] = text

    def drain(self) -> dict[str, str]:
        lines, self._lines = self._lines, {}
        return lines
