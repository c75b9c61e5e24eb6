"""A Ray cluster of three nodes on this machine, and what becomes of jobs on it.

`python -m tests.corpus.fleet_scenario DIR`, where DIR is a checkout with a case. A program, since Ray leaves threads,
handlers and sockets in the process that uses it. Prints JSON, which test_fleet.py looks at.
"""

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from casebook_ray.fleet import CAPABILITY_LABEL, LOOK_S, Fleet
from casebook_workbench.corpus import journal, schedule
from casebook_workbench.corpus.driver import Driver
from casebook_workbench.corpus.events import Event, Start
from casebook_workbench.corpus.model import Job, Run, Settings
from casebook_workbench.corpus.table import RunTable
from failure_signature.kinds import Grade

PATIENCE_S = 120.0


def job(name: str, does: str, **fields: Any) -> Job:
    values = {"case": name, "environment": "one", "failure": "exception", "grade": Grade.SIMULATED, "project": does}
    return Job.model_validate(values | fields)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def outcome(fleet: Fleet, one: Job) -> Event:
    fleet.start(Start(job=one, gpus=range(one.gpus)))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for event in fleet.events(1.0):
            return event
    raise TimeoutError


def ended(event: Event) -> dict[str, Any]:
    assert event.finished, event
    return event.finished.model_dump(mode="json") | {"worker": event.worker}


class Scenario:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.settings = Settings(root=str(top), reports=str(top / "reports"), engine="venv")
        self.port = free_port()
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        head = {"num_cpus": 0, "ray_client_server_port": self.port, "object_store_memory": 80 * 2**20}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        more: Any = {"object_store_memory": 80 * 2**20}
        self.wide = self.cluster.add_node(num_cpus=3, **more)
        self.cluster.add_node(num_cpus=2, num_gpus=2, labels={CAPABILITY_LABEL: "9.0"}, **more)

    def direct(self) -> dict[str, Any]:
        """Through the cluster's own address, with the jobs of fleet_jobs."""
        lines: list[str] = []
        found: dict[str, Any] = {"lines": lines}
        with Fleet(self.settings, self.cluster.address, lines.append, work="tests.corpus.fleet_jobs:run") as fleet:
            machines = sorted(fleet.machines, key=lambda machine: len(machine.gpus))
            found["machines"] = [[each.cores, [gpu.compute_capability for gpu in each.gpus]] for each in machines]
            found["real"] = ended(outcome(fleet, job("plain", "real")))
            found["gpus"] = ended(outcome(fleet, job("plain", "gpus", gpus=2)))
            found["shared"] = ended(outcome(fleet, job("plain", "gpus", gpus=1, shared=True)))
            wants = [job("plain", "gpus", gpus=1, compute_capability=range_) for range_ in (">=9.0", ">=10.0")]
            found["placed"] = ended(outcome(fleet, wants[0]))["worker"]
            found["impossible"] = schedule.impossible(wants[1], fleet.machines)
            found["dead"] = outcome(fleet, job("plain", "die")).lost
            found["left after a death"] = len(fleet.machines)
            found["no case"] = ended(outcome(fleet, job("nowhere", "gpus")))
            found |= self.killed(fleet)
            hold = self.top / "held"
            fleet.start(Start(job=job("plain", f"hold {hold}")))
            until(hold.exists)
            begun = time.monotonic()
        found["stopped"] = [Path(f"{hold}.cleaned").exists(), time.monotonic() - begun]
        return found

    def killed(self, fleet: Fleet) -> dict[str, Any]:
        """A run of which a job is on a node that is killed; the other node's cores are taken meanwhile."""
        begun, enough = self.top / "begun", self.top / "enough of it"
        jobs = [
            *(job("plain", f"until {enough}", environment=f"gpu {number}", gpus=1) for number in (1, 2)),
            job("plain", f"first {begun}"),
            job("plain", "gpus", environment="two"),
        ]
        run = Run(id="20260101-000000-aaaa", started=datetime.now(UTC), settings=self.settings, jobs=jobs)
        with journal.Journal.create(self.top / "reports", run) as record:
            killer = threading.Thread(
                target=self.kill_when, args=[lambda: begun.exists() and record.run.finished, enough]
            )
            killer.start()
            Driver(journal=record, workers=fleet, display=RunTable(io.StringIO(), len(jobs))).drive()
            finished = {each.job.environment: each.model_dump(mode="json") for each in record.run.finished}
        killer.join()
        time.sleep(LOOK_S)  # for so long, what it saw of its nodes may be from before the loss
        return {"killed": finished, "left after a kill": len(fleet.machines)}

    def kill_when(self, true: Callable[[], object], then: Path) -> None:
        until(true)
        self.cluster.remove_node(self.wide, allow_graceful=False)
        then.touch()

    def through_the_client(self) -> dict[str, Any]:
        with Fleet(self.settings, f"ray://127.0.0.1:{self.port}", lambda _line: None) as fleet:
            return {"client": ended(outcome(fleet, job("plain", "", environment="two")))}


def main() -> None:
    scenario = Scenario(Path(sys.argv[1]))
    try:
        found = scenario.direct() | scenario.through_the_client()
    finally:
        scenario.cluster.shutdown()  # type: ignore[no-untyped-call]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
