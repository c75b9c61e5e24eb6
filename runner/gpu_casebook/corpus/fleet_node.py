"""A node of a fleet, on its own side: it says what it is, and runs one job with the case that it was sent.

Loaded there by name, so that each node runs the runner that it has. What goes over the wire is text and bytes: two
revisions of the runner can at least see that they differ.
"""

import io
import socket
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from gpu_casebook.corpus.events import Event, Machine, Start
from gpu_casebook.corpus.model import Job, Settings
from gpu_casebook.corpus.pool import SPARE_S, WorkerProcess, end_all
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
_IDLE: list[WorkerProcess] = []
"""The worker that stays for the next task of this process of Ray's, if there is one."""


class Attested(Document):
    """What a node says of itself."""

    host: str
    runner: str
    gpus: list[HostGpu] = Field(default_factory=list)
    engines: list[str] = Field(default_factory=list)
    """Those that answer there."""


class Came(Document):
    """What came of a task: the last event of its job, with the evidence."""

    node: str
    """The id that Ray has for it."""
    event: Event
    evidence: str | None = None


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


def work(job_text: str, settings_text: str, does: str, case: bytes, images: bytes) -> str:
    """Have a worker do what `does` names as "module:name", and return `Came` as JSON. Runs on the node.

    `case` and `images` are archives.
    """
    import ray  # noqa: PLC0415 only where there is a fleet

    job, settings = Job.model_validate_json(job_text), Settings.model_validate_json(settings_text)
    gpus = given(job, [str(each) for each in ray.get_gpu_ids()], hardware.gpus())
    with scratch(_place()) as place:
        root, reports = place / "checkout", place / "reports"
        for archive in (images, case):
            unpack(archive, root)
        here = settings.model_copy(update={"root": str(root), "reports": str(reports)})
        event = _run(does, Start(job=job, gpus=gpus), here)
        written = event.finished and event.finished.evidence
        evidence = (reports / written).read_text(encoding="utf-8") if written else None
    return Came(node=ray.get_runtime_context().get_node_id(), event=event, evidence=evidence).model_dump_json()


def _run(does: str, start: Start, settings: Settings) -> Event:
    """Have a worker run the job; return the last event of it."""
    worker = _IDLE.pop() if _IDLE else WorkerProcess(does)
    if not worker.lives:
        worker = WorkerProcess(does)
    try:
        worker.begin(start, settings)
        event = None
        while event is None or event.said is not None:
            event = worker.event() if worker.socket.poll(_POLL_S) else None
    except BaseException:
        end_all([worker], STOP_S + SPARE_S)  # the job cleans up
        raise
    if event.lost is None:
        _IDLE.append(worker)
    return event


def given(job: Job, assigned: Sequence[str], found: Sequence[HostGpu]) -> Sequence[int]:
    """Return the indices of the GPUs that Ray assigned, as indices or UUIDs; none if the job can't use them.

    Ray takes all GPUs of a host for alike. Where they are not, or one is set aside, the job finds its own and locks it.
    """
    by_uuid = {gpu.uuid: gpu.index for gpu in found}
    indices = [int(each) if each.isdecimal() else by_uuid.get(each, -1) for each in assigned]
    usable = suitable(job, Machine(name="", cores=1, gpus=found)) if found else indices
    return indices if -1 not in indices and set(indices) <= set(usable) else ()


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
