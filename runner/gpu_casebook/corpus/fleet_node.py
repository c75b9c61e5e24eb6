"""A node of a fleet, on its own side: it says what it is, and runs one job with the case that it was sent.

Loaded there by name, so that each node runs the runner that it has. What goes over the wire is text and bytes: two
revisions of the runner can at least see that they differ.
"""

import io
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pydantic import Field

from gpu_casebook.corpus.events import Machine, Start
from gpu_casebook.corpus.model import Finished, Job, Settings
from gpu_casebook.corpus.pool import SPARE_S, News, WorkerProcess, end_all
from gpu_casebook.corpus.schedule import suitable
from gpu_casebook.corpus.worker import STOP_S
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.document import Document
from gpu_casebook.engines import registry
from gpu_casebook.engines.scratch import scratch, sweep, usual_place
from gpu_casebook.revision import own_revision

_POLL_S = 0.25
"""Ray cancels a task by marking a signal as pending, which wakes no system call: the task looks this often."""
_IDLE: list[tuple[WorkerProcess, News]] = []
"""The worker that stays for the next task of this process of Ray's, if there is one."""


class Attested(Document):
    """What a node says of itself."""

    host: str
    runner: str
    gpus: list[HostGpu] = Field(default_factory=list)
    engines: list[str] = Field(default_factory=list)
    """Those that answer there."""


class Came(Document):
    """What came of a task: an end, with its evidence, or the loss of its worker."""

    node: str
    """The id that Ray has for it."""
    finished: Finished | None = None
    evidence: str | None = None
    lost: str = ""


def _place() -> Path:
    """Where cases that came along lie while they run. Raises MachineError."""
    return usual_place() / "fleet"


def attest() -> str:
    """Return `Attested` as JSON, and remove what jobs left that were killed. Runs on the node. Raises MachineError."""
    sweep(_place())
    with tempfile.TemporaryDirectory() as nothing:
        engines = [engine.name for engine in registry.reachable(Path(nothing))]
    attested = Attested(host=socket.gethostname(), runner=own_revision(), gpus=hardware.gpus(), engines=engines)
    return attested.model_dump_json()


def work(order: Sequence[str], case: bytes, images: bytes, mail: Any, sender: str) -> str:
    """Run a job, and return `Came` as JSON. Runs on the node.

    `order` holds the job, the settings, and what a worker is to run as "module:name"; `case` and `images` are archives;
    `mail` is a `Mailbox` for lines of text, and `sender` whose they are.
    """
    import ray  # noqa: PLC0415 only where there is a fleet

    job, settings = Job.model_validate_json(order[0]), Settings.model_validate_json(order[1])
    gpus = given(job, [str(each) for each in ray.get_gpu_ids()], hardware.gpus())
    with scratch(_place()) as place:
        root, reports = place / "checkout", place / "reports"
        for archive in (images, case):
            unpack(archive, root)
        here = settings.model_copy(update={"root": str(root), "reports": str(reports)})
        came = _run(order[2], Start(job=job, gpus=gpus), here, lambda text: mail.post.remote(sender, text))
        node = ray.get_runtime_context().get_node_id()
        if isinstance(came, str):
            return Came(node=node, lost=came).model_dump_json()
        evidence = (reports / came.evidence).read_text(encoding="utf-8") if came.evidence else None
        return Came(node=node, finished=came, evidence=evidence).model_dump_json()


def _run(does: str, start: Start, settings: Settings, tell: Callable[[str], object]) -> Finished | str:
    """Have a worker run the job; return how that ended, or why the worker is gone."""
    worker, news = _IDLE.pop() if _IDLE else _spawned(does)
    if not worker.lives:
        worker, news = _spawned(does)
    try:
        worker.begin(start, settings)
        while True:
            with suppress(Empty):
                _, message = news.get(timeout=_POLL_S)
                if message is None:
                    end_all([worker], SPARE_S)
                    return worker.ending()
                if message.said is not None:
                    tell(message.said)
                elif message.finished:
                    _IDLE.append((worker, news))
                    return message.finished
    except BaseException:
        end_all([worker], STOP_S + SPARE_S)  # the job cleans up
        raise


def _spawned(does: str) -> tuple[WorkerProcess, News]:
    news: News = SimpleQueue()
    return WorkerProcess(does, news), news


def given(job: Job, assigned: Sequence[str], found: Sequence[HostGpu]) -> Sequence[int]:
    """Return the indices of the GPUs that Ray assigned, as indices or UUIDs; none if the job can't use them.

    Ray takes all GPUs of a host for alike. Where they are not, or one is set aside, the job finds its own and locks it.
    """
    by_uuid = {gpu.uuid: gpu.index for gpu in found}
    indices = [int(each) if each.isdecimal() else by_uuid.get(each, -1) for each in assigned]
    usable = suitable(job, Machine(name="", cores=1, gpus=found)) if found else indices
    return indices if -1 not in indices and set(indices) <= set(usable) else ()


class Mailbox:
    """Lines for the driver's table, on their way. An actor, beside the head of the cluster."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def post(self, sender: str, text: str) -> None:
        """Keep only the newest of each sender."""
        self._lines[sender] = text

    def drain(self) -> dict[str, str]:
        lines, self._lines = self._lines, {}
        return lines


def pack(root: Path, names: Iterable[str]) -> bytes:
    """Return an archive of these files and directories of a checkout, with nothing of this machine in it.

    Links arrive as what they lead to. Raises OSError.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for name in names:
            archive.add(root / name, name, filter=_plain)
    return packed.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in entry.name.split("/") or not (entry.isdir() or entry.isreg()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(packed: bytes, root: Path) -> None:
    """Lay out what `pack` packed. Raises OSError, or tarfile.TarError for what is no such thing."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(root, filter="data")
