"""Which nodes of a Ray cluster jobs may go to: each is asked once what it is, and those that won't do are told of."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gpu_casebook.corpus import fleet_node
from gpu_casebook.corpus.fleet_node import Attested
from gpu_casebook.corpus.workers import Gpu, Machine
from gpu_casebook.errors import EngineError
from gpu_casebook.revision import own_revision
from gpu_casebook.text import one_line

CAPABILITY_LABEL = "casebook-compute-capability"
"""Of a node whose GPUs its host does not show, as its engine is elsewhere: ray start --labels=LABEL=9.0"""
ATTEST_S = 120.0
"""How long the first nodes may take: they may have to start a process, on a machine that is busy."""
STILL_THERE_S = 10.0
LOOK_S = 1.0


@dataclass(kw_only=True)
class Nodes:
    """`cluster` is the module `ray`, connected; `engine` the one that the run wants. `say` takes lines for a person."""

    cluster: Any
    engine: str | None
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    machines: dict[str, Machine] = field(default_factory=dict)
    """By the id that Ray has for the node."""

    def __post_init__(self) -> None:
        self._asked: dict[Any, Mapping[str, Any]] = {}
        self._refused: dict[str, str] = {}
        self._looked = float("-inf")
        self._own = own_revision()

    def gather(self) -> None:
        """Wait until every node has answered. Raises EngineError, with each one's reason, where none will do."""
        deadline = self.clock() + ATTEST_S
        self.look(now=True)
        while self._asked and self.clock() < deadline:
            self.cluster.wait(list(self._asked), timeout=LOOK_S)
            self._take_answers()
        if not self.machines:
            reasons = [*self._refused.values(), *(f"{_host(node)}: no answer" for node in self._asked.values())]
            raise EngineError(f"no node of the fleet can run anything: {'; '.join(reasons) or 'it has none'}")

    def look(self, *, now: bool = False) -> None:
        """Learn which nodes came and went."""
        if not now and self.clock() - self._looked < LOOK_S:
            return
        self._looked = self.clock()
        alive = {node["NodeID"]: node for node in self.cluster.nodes() if node["Alive"] and _cores(node)}
        for id_ in set(self.machines) - set(alive):
            del self.machines[id_]
        known = {*self.machines, *self._refused, *(node["NodeID"] for node in self._asked.values())}
        for id_ in set(alive) - known:
            self._asked[self._ask(id_)] = alive[id_]
        self._take_answers()

    def named(self, machine: str) -> str | None:
        """The id of the node with this name; None if it is gone."""
        return next((id_ for id_, known in self.machines.items() if known.name == machine), None)

    def check(self, machine: str) -> None:
        """Something happened there: see whether it still answers. It may take Ray a while to call a node dead."""
        id_ = self.named(machine)
        if id_ is None:
            return
        answer = self._ask(id_)
        ready, _ = self.cluster.wait([answer], timeout=STILL_THERE_S)
        if not ready or self._failure(answer):
            self.machines.pop(id_, None)

    def _ask(self, id_: str) -> Any:
        return self.cluster.remote(num_cpus=0, max_retries=0)(fleet_node.attest).options(**pinned(id_)).remote()

    def _failure(self, answer: Any) -> Exception | None:
        try:
            self.cluster.get(answer)
        except self.cluster.exceptions.RayError as error:
            return error  # type: ignore[no-any-return]
        return None

    def _take_answers(self) -> None:
        if not self._asked:
            return
        ready, _ = self.cluster.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for answer in ready:
            self._take(self._asked.pop(answer), answer)

    def _take(self, node: Mapping[str, Any], answer: Any) -> None:
        try:
            attested = Attested.model_validate_json(self.cluster.get(answer))
            reason = unfit(attested, self._own, self.engine)
        except ValidationError:
            return self._refuse(node, "its runner is another one than this: what it tells of itself can't be read")
        except self.cluster.exceptions.RayTaskError as error:
            return self._refuse(node, f"its runner can't be asked: {one_line(str(error.cause or error), 200)}")
        except self.cluster.exceptions.RayError:
            return None  # it is gone again; if it is not, it is asked again
        if reason:
            return self._refuse(node, reason)
        machine = machine_of(node, attested, [known.name for known in self.machines.values()])
        self.machines[node["NodeID"]] = machine
        return self.say(f"fleet: {told(machine, attested)}")

    def _refuse(self, node: Mapping[str, Any], reason: str) -> None:
        self._refused[node["NodeID"]] = f"{_host(node)}: {reason}"
        self.say(f"fleet: not used: {_host(node)}: {reason}")


def unfit(attested: Attested, own: str, engine: str | None) -> str | None:
    """Why nothing should be run on a node that says this of itself."""
    if attested.runner != own:
        return f"its runner is {attested.runner}, and this one is {own}; evidence of a run comes from one runner"
    if engine and engine not in attested.engines:
        return f"the {engine} engine does not answer there (there are: {', '.join(attested.engines) or 'none'})"
    return None


def machine_of(node: Mapping[str, Any], attested: Attested, taken: Sequence[str]) -> Machine:
    """What Ray shares out of a node. Its name is the host's, with a part of the node's id if that is `taken`."""
    name = attested.host if attested.host not in taken else f"{attested.host}-{node['NodeID'][:4]}"
    return Machine(name=name, cores=_cores(node), gpus=_gpus(node, attested))


def _gpus(node: Mapping[str, Any], attested: Attested) -> tuple[Gpu, ...]:
    """As many as Ray may hand out, those that are set aside last; where the host shows none, as they are declared."""
    count = int(node["Resources"].get("GPU", 0))
    if attested.gpus:
        return tuple(sorted(attested.gpus, key=lambda gpu: gpu.aside is not None)[:count])
    capability = node.get("Labels", {}).get(CAPABILITY_LABEL, "")
    return tuple(Gpu(index=index, compute_capability=capability) for index in range(count))


def told(machine: Machine, attested: Attested) -> str:
    """One line on a machine, such as "box: 16 cores, 2 x NVIDIA H200 (9.0, driver 580.65), docker, venv"."""
    kinds = [f"{gpu.name or 'GPU'} ({gpu.compute_capability or 'of some kind'})" for gpu in machine.gpus]
    gpus = [f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)]
    driver = [f"driver {attested.driver}"] if attested.driver else []
    cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
    return f"{machine.name}: {', '.join([cores, *gpus, *driver, *attested.engines])}"


def pinned(id_: str) -> dict[str, Any]:
    """Ray's options for a task that runs on this node or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 only where there is one

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(id_, soft=False)}


def _cores(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("CPU", 0))


def _host(node: Mapping[str, Any]) -> str:
    return str(node.get("NodeManagerHostname") or node["NodeManagerAddress"])
