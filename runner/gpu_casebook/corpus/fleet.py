"""Workers on the machines of a Ray cluster. Satisfies `gpu_casebook.corpus.workers.Workers`.

Each job is one Ray task, pinned to the machine that the driver chose, with as many of Ray's CPUs and GPUs, so that
whoever else uses the cluster is kept off them. Ray runs nothing again by itself: a lost worker is the driver's to see.
The machines need a runner of the same revision and nothing else of this one: the case travels with the job, and its
evidence comes back.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from gpu_casebook.corpus import fleet_node, parcel
from gpu_casebook.corpus.fleet_cluster import connected
from gpu_casebook.corpus.fleet_nodes import Nodes, pinned
from gpu_casebook.corpus.model import End, Finished, Lost, Settings
from gpu_casebook.corpus.pool import WORK, cores
from gpu_casebook.corpus.workers import Built, Ended, Event, Gone, Machine, Said, Start
from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Evidence, evidence_path
from gpu_casebook.packages.uv import disk_is_full
from gpu_casebook.text import one_line

STOP_S = 5.0
"""How long interrupted jobs may clean up."""
SHARE = 0.125
"""Of a GPU, for a job that shares it: the driver says how many do."""
_SLICE_S = 0.25
_WORDS = {
    "NodeDiedError": "its machine left the fleet",
    "TaskUnschedulableError": "its machine left the fleet",
    "ActorUnschedulableError": "its machine left the fleet",
    "WorkerCrashedError": "its process died",
    "LocalRayletDiedError": "its machine left the fleet",
    "OutOfMemoryError": "Ray ended it, because the machine's memory ran out",
    "TaskCancelledError": "it was cancelled",
}


@dataclass(kw_only=True)
class _Task:
    worker: str
    start: Start
    begun: float

    @property
    def sender(self) -> str:
        """Whose lines are its own: a worker's name is the next task's too, and lines come late."""
        return f"{self.worker} {self.begun}"

    def lost(self, reason: str) -> Gone:
        lost = Lost(worker=self.worker, reason=reason, after_s=time.monotonic() - self.begun)
        return Gone(job=self.start.job, lost=lost)


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
        self._jobs = jobs or cores()
        self._open = ExitStack()
        self._tasks: dict[Any, _Task] = {}
        self._early: list[Event] = []
        self._asked: Any = None

    def __enter__(self) -> Self:
        """Raises UsageError, or EngineError where no cluster answers or none of its machines will do."""
        with ExitStack() as opening:
            self._ray = opening.enter_context(connected(self._address, self._jobs))
            self._nodes = Nodes(cluster=self._ray, engine=self._settings.engine, say=self._say)
            self._nodes.gather()
            self._images = self._ray.put(parcel.pack(Path(self._settings.root), ["images"]))
            self._mail = self._mailbox()
            self._do = self._ray.remote(max_retries=0)(fleet_node.work)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Every job is gone within `STOP_S` and what Ray needs to end its own processes."""
        with self._open, suppress(self._ray.exceptions.RayError, ConnectionError):
            self._cancel(list(self._tasks))
        self._tasks.clear()

    @property
    def machines(self) -> Sequence[Machine]:
        with self._reached():
            self._nodes.look()
        return list(self._nodes.machines.values())

    def start(self, start: Start) -> str:
        worker = self._free_name(start.machine)
        task = _Task(worker=worker, start=start, begun=time.monotonic())
        node = self._nodes.named(start.machine)
        if node is None:
            self._early.append(task.lost("its machine left the fleet"))
            return worker
        try:
            case = parcel.pack(Path(self._settings.root), [f"cases/{start.job.case}"])
        except OSError as error:
            self._early.append(Ended(finished=self._broke(task, _why(error))))
            return worker
        with self._reached():
            self._tasks[self._submit(task, node, case)] = task
        return worker

    def events(self, within_s: float) -> Sequence[Event]:
        deadline = time.monotonic() + within_s
        events, self._early = self._early, []
        while True:
            left = 0.0 if events else max(0.0, deadline - time.monotonic())
            with self._reached():
                events += self._news(min(left, _SLICE_S))
            if events or not left:
                return events

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Raises EngineError where the cluster itself went away, which no other machine can make good."""
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            why = one_line(str(error), 200)
            raise EngineError(f"the fleet at {self._address} went away: {why}; go on with --resume") from error

    def _submit(self, task: _Task, node: str, case: bytes) -> Any:
        start, machine = task.start, self._nodes.machines[node]
        order = (start.job.model_dump_json(), self._settings.model_dump_json(), self._work)
        resources = {
            "num_cpus": 1 if start.builds else min(max(1, start.job.cores), machine.cores),
            "num_gpus": SHARE if start.job.shared and start.gpus else len(start.gpus),
        }
        remote = self._do.options(name=start.job.name, **resources, **pinned(node))
        return remote.remote(
            order, case, self._images, tuple(start.gpus), (self._mail, task.sender), builds=start.builds
        )

    def _news(self, within_s: float) -> list[Event]:
        if not self._tasks:
            time.sleep(within_s)
            return []
        refs = list(self._tasks)
        self._ray.wait(refs, timeout=within_s)
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        ended = [self._ended(self._tasks.pop(ref), ref) for ref in ready]
        return [*self._said(), *ended]

    def _ended(self, task: _Task, ref: Any) -> Event:
        errors = self._ray.exceptions
        try:
            finished, evidence = self._ray.get(ref)
            if finished is None:
                return Built(job=task.start.job, after_s=time.monotonic() - task.begun)
            return Ended(finished=self._kept(task, Finished.model_validate_json(finished), evidence))
        except errors.RayTaskError as error:
            return Ended(finished=self._broke(task, f"the runner failed there: {one_line(str(error.cause), 300)}"))
        except (errors.RayError, ConnectionError) as error:
            self._nodes.check(task.start.machine)
            kind = type(error).__name__
            return task.lost(_WORDS.get(kind, f"{kind}: {one_line(str(error), 200)}"))
        except ValidationError as error:
            return Ended(finished=self._broke(task, f"what came back can't be read: {error.errors()[0]['msg']}"))

    def _kept(self, task: _Task, finished: Finished, evidence: str | None) -> Finished:
        """Its evidence is on this machine's disk, or it broke. Raises ValidationError."""
        told = {"job": task.start.job, "worker": task.worker, "evidence": None}
        if evidence is None:
            return finished.model_copy(update=told)
        try:
            found, reports = Evidence.model_validate_json(evidence), Path(self._settings.reports)
            path = evidence_path(reports, found)
            found.write(path)
        except OSError as error:
            return self._broke(task, _why(error), stops=disk_is_full(error))
        return finished.model_copy(update=told | {"evidence": path.relative_to(reports).as_posix()})

    def _broke(self, task: _Task, reason: str, *, stops: bool = False) -> Finished:
        return Finished(
            job=task.start.job,
            end=End.BROKE,
            reason=reason,
            stops=stops,
            worker=task.worker,
            started=datetime.now(UTC),
            duration_s=time.monotonic() - task.begun,
        )

    def _said(self) -> list[Event]:
        """Lines for the table; where they got lost, the next ones come."""
        self._asked = self._asked or self._mail.drain.remote()
        if not self._ray.wait([self._asked], timeout=0)[0]:
            return []
        try:
            lines = self._ray.get(self._asked)
        except self._ray.exceptions.RayError:
            return []
        finally:
            self._asked = None
        tasks = {task.sender: task for task in self._tasks.values()}
        return [
            Said(worker=task.worker, job=task.start.job, text=text)
            for sender, text in lines.items()
            if (task := tasks.get(sender))
        ]

    def _mailbox(self) -> Any:
        head = next(node["NodeID"] for node in self._ray.nodes() if "node:__internal_head__" in node["Resources"])
        actor = self._ray.remote(num_cpus=0, max_restarts=-1)(fleet_node.Mailbox)
        return actor.options(**pinned(head)).remote()

    def _cancel(self, refs: Sequence[Any]) -> None:
        """As Ctrl-C would, so that trials are ended; whatever is still there then, by force."""
        for ref in refs:
            self._ray.cancel(ref)
        left = self._unfinished(refs, STOP_S)
        for ref in left:
            self._ray.cancel(ref, force=True)
        self._unfinished(left, 1.0)

    def _unfinished(self, refs: Sequence[Any], within_s: float) -> list[Any]:
        return list(self._ray.wait(refs, num_returns=len(refs), timeout=within_s)[1]) if refs else []

    def _free_name(self, machine: str) -> str:
        taken = {task.worker for task in self._tasks.values()}
        numbers = range(1, len(taken) + 2)
        return next(name for number in numbers if (name := f"{machine}:{number}") not in taken)


def _why(error: OSError) -> str:
    return f"{error.strerror or error}: {error.filename}" if error.filename else str(error.strerror or error)
