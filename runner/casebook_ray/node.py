"""A node of a fleet, on its own side: it says what it is, and runs one job with the case that it was sent.

Loaded there by name, so that each node runs the runner that it has. What goes over the wire is text and bytes: two
revisions of the runner can at least see that they differ.
"""

import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.model import Job, Settings
from casebook_workbench.corpus.pool import SPARE_S, WorkerProcess, end_all
from casebook_workbench.corpus.schedule import suitable
from casebook_workbench.corpus.worker import STOP_S
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

Files = Mapping[str, bytes]
"""Content by path, relative to the checkout: what travels of it."""


class Attested(Document):
    """What a node says of itself."""

    host: str
    runner: str
    gpus: list[HostGpu] = Field(default_factory=list)
    engines: list[str] = Field(default_factory=list)
    """Those that answer there."""


class Came(Document):
    """The result of a task: the last event of its job, with the evidence."""

    node: str
    """The id that Ray has for it."""
    event: Event
    evidence: str | None = None


def _place() -> Path:
    """Return the directory for cases that were sent along. Raises MachineError."""
    return usual_place() / "fleet"


def attest() -> str:
    """Return `Attested` as JSON, and remove what jobs left that were killed. Runs on the node. Raises MachineError."""
    sweep(_place())
    with tempfile.TemporaryDirectory() as nothing:
        engines = [engine.name for engine in registry.reachable(Path(nothing))]
    attested = Attested(host=socket.gethostname(), runner=own_revision(), gpus=hardware.gpus(), engines=engines)
    return attested.model_dump_json()


def work(job_text: str, settings_text: str, does: str, case: Files, images: Files) -> str:
    """Have a worker do what `does` names as "module:name", and return `Came` as JSON. Runs on the node."""
    import ray  # noqa: PLC0415 only where there is a fleet

    job, settings = Job.model_validate_json(job_text), Settings.model_validate_json(settings_text)
    gpus = given(job, [str(each) for each in ray.get_gpu_ids()], hardware.gpus())
    with scratch(_place()) as place:
        root, reports = place / "checkout", place / "reports"
        unpack({**images, **case}, root)
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


def pack(root: Path, directory: str) -> Files:
    """Return the files of a directory of the checkout at `root`. Raises OSError."""
    (root / directory).stat()  # one that is not there is no empty one
    paths = [path for path in (root / directory).rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def unpack(files: Files, root: Path) -> None:
    """Write what `pack` returned. Raises OSError."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
