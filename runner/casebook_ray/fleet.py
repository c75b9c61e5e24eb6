"""Workers on the machines of a Ray cluster. Satisfies `events.Workers`.

Each job is one Ray task with as many of Ray's CPUs and GPUs, which Ray places: on any of the nodes that can run it, by
their label. So whoever else uses the cluster is kept off them. Ray runs nothing again by itself: a lost worker is the
driver's to see. The machines need a runner of the same revision and nothing else of this one: the case travels with the
job, and its evidence comes back.
"""

import logging
import os
import re
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from casebook_ray import node as on_node
from casebook_ray.node import Attested, Came
from casebook_workbench.corpus import worker
from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.model import End, Settings, ended
from casebook_workbench.corpus.pool import SPARE_S, WORK
from casebook_workbench.corpus.schedule import impossible
from failure_signature.text import one_line, plural
from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.evidence import Evidence, evidence_path, keep
from gpu_casebook.files import disk_is_full, os_reason
from gpu_casebook.places import images_of
from gpu_casebook.revision import own_revision

LOCAL, AUTO = "local", "auto"
CAPABILITY_LABEL = "casebook-compute-capability"
"""Of a node whose GPUs its host does not show, as its engine is elsewhere: ray start --labels=LABEL=9.0"""
NODE_LABEL = "ray.io/node-id"
"""Ray gives each node this one."""
REACH_S = 10.0
ATTEST_S = 120.0
"""How long the first nodes may take: they may have to start a process, on a machine that is busy."""
LOOK_S = 1.0
STOP_S = worker.STOP_S + SPARE_S + 1.0
"""How long interrupted jobs may clean up."""
SHARE = 0.125
"""Of a GPU, for a job that shares it: the driver says how many do."""
_TRIES = 3
_STORE_BYTES = 100 * 10**6
"""What is handed around are cases and their evidence: kilobytes. Ray would take a third of the memory."""
_LONGEST = 20
"""Of the directory for Ray's own: it makes sockets far below, whose paths may have 107 characters."""
_ADDRESS = re.compile(r"(ray://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):(?P<port>[0-9]{1,5})")
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
}
_LOST = {
    "WorkerCrashedError": "its process died",
    "OutOfMemoryError": "Ray ended it, because the machine's memory ran out",
}
_LEFT = "its machine left the fleet"


@dataclass(kw_only=True)
class _Task:
    """A job that Ray has."""

    number: int
    start: Start
    nodes: Sequence[str]
    """Where Ray may place it."""
    begun: float = field(default_factory=time.monotonic)
    machine: str = "ray"
    """Where Ray placed it, once that is known."""

    @property
    def worker(self) -> str:
        return f"{self.machine}:{self.number}"

    def event(self, **news: Any) -> Event:
        return Event(job=self.start.job.name, worker=self.worker, **news)

    def broke(self, reason: str, *, stops: bool = False) -> Event:
        duration_s = time.monotonic() - self.begun
        return self.event(finished=ended(self.start.job, End.BROKE, reason, stops=stops, duration_s=duration_s))


class Fleet:
    """The cluster at `address`: ray://HOST:PORT, HOST:PORT, "auto", or "local" for one of its own on this machine.

    `say` takes a line for each machine, and for each that is not used. `jobs` is for "local": how many at once.
    """

    def __init__(
        self,
        settings: Settings,
        address: str,
        say: Callable[[str], None] = print,
        *,
        jobs: int | None = None,
        work: str = WORK,
    ) -> None:
        self._settings, self._address, self._say, self._work = settings, address, say, work
        self._jobs = jobs or hardware.cores()
        self._open = ExitStack()
        self._nodes: dict[str, Machine] = {}  # by the id that Ray has for the node
        self._refused: dict[str, str] = {}
        self._looked = float("-inf")
        self._tasks: dict[Any, _Task] = {}
        self._early: list[Event] = []

    def __enter__(self) -> Self:
        """Raises UsageError, or EngineError where no cluster answers or none of its machines will do."""
        with ExitStack() as opening:
            self._ray = opening.enter_context(connected(self._address, self._jobs))
            self._look()
            if not self._nodes:
                reasons = "; ".join(self._refused.values()) or "it has none"
                raise EngineError(f"no node of the fleet can run anything: {reasons}")
            self._images = self._ray.put(on_node.pack(images_of(Path(self._settings.root)).parent, "images"))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End every job within `STOP_S` and the time Ray needs to end its own processes."""
        with self._open, suppress(self._ray.exceptions.RayError, ConnectionError):
            for task in self._tasks:
                self._ray.cancel(task)
            for task in self._unfinished(STOP_S):
                self._ray.cancel(task, force=True)
            self._unfinished(1.0)
        self._tasks.clear()

    def _unfinished(self, within_s: float) -> list[Any]:
        tasks = list(self._tasks)
        return list(self._ray.wait(tasks, num_returns=len(tasks), timeout=within_s)[1]) if tasks else []

    def _remote(self, what: Any, nodes: Sequence[str], **options: Any) -> Callable[..., Any]:
        """Return a function that has Ray run this on one of the nodes, whichever it chooses."""
        selector = {NODE_LABEL: f"in({','.join(nodes)})"}
        submit: Callable[..., Any] = self._ray.remote(**options)(what).options(label_selector=selector).remote
        return submit

    # --- machines

    @property
    def machines(self) -> Sequence[Machine]:
        if time.monotonic() - self._looked >= LOOK_S:
            with self._reached():
                self._look()
        return list(self._nodes.values())

    def _look(self) -> None:
        """Note which nodes joined or left, and ask the new ones what they are."""
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"] and _cores(node)}
        self._nodes = {id_: machine for id_, machine in self._nodes.items() if id_ in alive}
        new = [id_ for id_ in alive if id_ not in self._nodes and id_ not in self._refused]
        asked = {id_: self._remote(on_node.attest, [id_], num_cpus=0, max_retries=0)() for id_ in new}
        if asked:
            self._ray.wait(list(asked.values()), num_returns=len(asked), timeout=ATTEST_S)
        for id_, answer in asked.items():
            self._take(alive[id_], answer)
        for ref, task in self._tasks.items():
            if not set(task.nodes) & set(alive):
                self._ray.cancel(ref, force=True)  # or Ray waits for one of these nodes for ever
        self._looked = time.monotonic()

    def _take(self, node: Mapping[str, Any], answer: Any) -> None:
        """Use a node, or say why it is not used."""
        try:
            attested = Attested.model_validate_json(self._ray.get(answer, timeout=LOOK_S))
        except ValidationError:
            reason: str | None = "its runner is another one than this: what it says of itself can't be read"
        except self._ray.exceptions.RayTaskError as error:
            reason = f"its runner can't be asked: {one_line(str(error.cause or error), 200)}"
        except self._ray.exceptions.RayError:
            reason = "no answer"
        else:
            reason = unfit(attested, own_revision(), self._settings.engine)
            if reason is None:
                machine = machine_of(node, attested, [known.name for known in self._nodes.values()])
                self._nodes[node["NodeID"]] = machine
                self._say(f"fleet: {described(machine, attested)}")
                return
        self._refused[node["NodeID"]] = f"{_host(node)}: {reason}"
        self._say(f"fleet: not used: {_host(node)}: {reason}")

    # --- jobs

    def start(self, start: Start) -> str:
        taken = {task.number for task in self._tasks.values()}
        number = next(number for number in range(1, len(taken) + 2) if number not in taken)
        nodes = [id_ for id_, machine in self._nodes.items() if impossible(start.job, [machine]) is None]
        task = _Task(number=number, start=start, nodes=nodes)
        try:
            case = on_node.pack(Path(self._settings.root), f"cases/{start.job.case}")
        except OSError as error:
            self._early.append(task.broke(os_reason(error)))
            return task.worker
        gpus = SHARE if start.job.shared and start.gpus else len(start.gpus)
        texts = start.job.model_dump_json(), self._settings.model_dump_json(), self._work
        with self._reached():
            submit = self._remote(on_node.work, nodes, name=start.job.name, num_cpus=1, num_gpus=gpus, max_retries=0)
            self._tasks[submit(*texts, case, self._images)] = task
        return task.worker

    def events(self, within_s: float) -> Sequence[Event]:
        events, self._early = self._early, []
        if self._tasks:
            with self._reached():
                done, _ = self._ray.wait(list(self._tasks), timeout=0 if events else within_s)
                events += [self._ended(self._tasks.pop(task), task) for task in done]
        return events

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn the loss of the cluster itself, which no other machine can make good, into EngineError."""
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            why = one_line(str(error), 200)
            raise EngineError(f"the fleet at {self._address} went away: {why}; go on with --resume") from error

    def _ended(self, task: _Task, ref: Any) -> Event:
        errors = self._ray.exceptions
        try:
            return self._kept(task, Came.model_validate_json(self._ray.get(ref)))
        except errors.RayTaskError as error:
            return task.broke(f"the runner failed there: {one_line(str(error.cause), 300)}")
        except (errors.RayError, ConnectionError) as error:
            return task.event(lost=_LOST.get(type(error).__name__, _LEFT))
        except ValidationError as error:
            return task.broke(f"what came back can't be read: {error.errors()[0]['msg']}")

    def _kept(self, task: _Task, came: Came) -> Event:
        """Write a job's evidence to this machine's disk. Raises ValidationError."""
        if machine := self._nodes.get(came.node):
            task.machine = machine.name
        evidence = None
        if came.evidence is not None:
            try:
                found, reports = Evidence.model_validate_json(came.evidence), Path(self._settings.reports)
                path = evidence_path(reports, found)
                keep(reports, found)
            except OSError as error:
                return task.broke(os_reason(error), stops=disk_is_full(error))
            evidence = path.relative_to(reports).as_posix()
        finished = came.event.finished and came.event.finished.model_copy(update={"evidence": evidence})
        return task.event(lost=came.event.lost, finished=finished)


def unfit(attested: Attested, own: str, engine: str | None) -> str | None:
    """Return why nothing should be run on a node that says this of itself."""
    if attested.runner != own:
        return f"its runner is {attested.runner}, and this one is {own}; evidence of a run comes from one runner"
    if engine and engine not in attested.engines:
        return f"the {engine} engine does not answer there (there are: {', '.join(attested.engines) or 'none'})"
    return None


def machine_of(node: Mapping[str, Any], attested: Attested, taken: Sequence[str]) -> Machine:
    """Return what Ray shares out of a node. Its name is the host's, with a part of the node's id if that is `taken`.

    It has as many GPUs as Ray may hand out, those that are set aside last; where the host shows none, as declared.
    """
    name = attested.host if attested.host not in taken else f"{attested.host}-{node['NodeID'][:4]}"
    count = int(node["Resources"].get("GPU", 0))
    capability = node.get("Labels", {}).get(CAPABILITY_LABEL, "")
    declared = [HostGpu(index=index, compute_capability=capability) for index in range(count)]
    gpus = sorted(attested.gpus, key=lambda gpu: gpu.aside is not None)[:count] or declared
    return Machine(name=name, cores=_cores(node), gpus=gpus)


def described(machine: Machine, attested: Attested) -> str:
    """Return a line such as "box: 16 cores, 2 x NVIDIA H200 (9.0), driver 580.65, docker, venv"."""
    kinds = [f"{gpu.name or 'GPU'} ({gpu.compute_capability or 'of some kind'})" for gpu in machine.gpus]
    gpus = [f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)]
    driver = [f"driver {gpu.driver}" for gpu in attested.gpus[:1]]
    return f"{machine.name}: {', '.join([plural(machine.cores, 'core'), *gpus, *driver, *attested.engines])}"


def _cores(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("CPU", 0))


def _host(node: Mapping[str, Any]) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])


def checked(address: str) -> str:
    """Return the address. Raises UsageError where this can't be a fleet, or Ray is not installed."""
    if address not in {LOCAL, AUTO} and not _ADDRESS.fullmatch(address):
        raise UsageError(f"--fleet {address}: write ray://HOST:PORT, HOST:PORT, auto (the cluster here) or local")
    if find_spec("ray") is None:
        raise UsageError("--fleet needs Ray, which is not installed: pip install 'gpu-casebook[ray]'")
    return address


@contextmanager
def connected(address: str, cores: int) -> Iterator[Any]:
    """Yield the module `ray`, connected. `cores` is what a local cluster shares out.

    Raises EngineError where no cluster answers.
    """
    _reach(checked(address))
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray  # noqa: PLC0415 it takes a second, and is an extra

    logging.getLogger("ray").setLevel(logging.CRITICAL)  # what it has to say of lost workers, the run says itself
    terminate = signal.getsignal(signal.SIGTERM)
    with ExitStack() as own:
        options = own.enter_context(_own_cluster(cores)) if address == LOCAL else {}
        try:
            _join(ray, address, options)
        except (OSError, RuntimeError, ValueError, TimeoutError) as error:
            ray.shutdown()
            raise EngineError(f"no fleet at {address}: {str(error).strip().split(chr(10))[0]}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)  # Ray takes it, and ends the process without a word
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect, with retries: the server that a cluster starts for a client may not be up when Ray's time limit ends."""
    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(address, logging_level=logging.CRITICAL, log_to_driver=False, **options)
        except ConnectionAbortedError:
            ray.shutdown()
            if not tries_left:
                raise
        else:
            return


@contextmanager
def _own_cluster(cores: int) -> Iterator[dict[str, Any]]:
    """Yield the arguments that start a cluster on this machine; remove what it leaves."""
    usual = tempfile.gettempdir()
    where = usual if len(usual) <= _LONGEST else "/tmp"  # noqa: S108 the directory in it is private
    with tempfile.TemporaryDirectory(prefix="casebook-ray-", dir=where, ignore_cleanup_errors=True) as place:
        yield {
            "num_cpus": cores,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "_temp_dir": place,
        }


def _reach(address: str) -> None:
    """Check that the host answers, as Ray waits a minute for one that does not. Raises EngineError."""
    match = _ADDRESS.fullmatch(address)
    if not match:
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise EngineError(f"no fleet at {address}: {why}") from error
