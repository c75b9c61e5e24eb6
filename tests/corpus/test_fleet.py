"""The fleet on a real cluster, see fleet_scenario.py; and what can be known without one."""

import errno
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from casebook_ray import fleet as module
from casebook_ray.fleet import CAPABILITY_LABEL, Fleet, _Task, described, machine_of, unfit
from casebook_ray.node import Attested, Came
from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.model import End, Finished, Settings
from failure_signature.trials import Verdict
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.evidence import Evidence
from tests.conftest import PLAIN
from tests.corpus.pool_jobs import job
from tests.fakes import locked

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one case, which needs nothing but Python."""
    top = tmp_path_factory.mktemp("fleet")
    case = top / "cases" / "plain"
    for directory in (case / "locks", top / "images" / "cpu"):
        directory.mkdir(parents=True)
    (top / "images" / "cpu" / "Dockerfile").touch()
    (case / "case.yaml").write_text(PLAIN)
    (case / "repro.py").write_text("raise ValueError('sizes differ')\n")
    (case / "fixed.py").write_text("print('all good')\n")
    for environment in ("one", "two"):
        (case / "locks" / f"{environment}.txt").write_text(locked([]))
    return top


@pytest.fixture(scope="module")
def scenario(place: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.corpus.fleet_scenario", str(place)]
    variables = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/runner"}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found(scenario: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert scenario.returncode == 0, scenario.stdout + scenario.stderr
    result: dict[str, Any] = json.loads(scenario.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
class TestCluster:
    def test_ray_says_nothing_but_of_what_was_lost(
        self, found: dict[str, Any], scenario: "subprocess.CompletedProcess[str]"
    ) -> None:
        said = "".join(scenario.stdout.splitlines(keepends=True)[:-1])
        assert not said or said.lstrip().startswith(("(raylet)", "\x1b")), said
        assert scenario.stderr == ""

    def test_each_node_is_asked_what_it_is_and_one_without_cores_is_none(self, found: dict[str, Any]) -> None:
        assert found["machines"] == [[3, []], [2, ["9.0", "9.0"]]]
        told = sorted(line.partition(": ")[2].partition(": ")[2] for line in found["lines"])
        without_engines = [re.sub("(, [a-z]+)+$", "", each) for each in told]
        assert without_engines == ["2 cores, 2 x GPU (9.0)", "3 cores"]

    def test_a_case_travels_and_its_evidence_comes_back(self, found: dict[str, Any], place: Path) -> None:
        finished = found["real"]
        assert (finished["end"], finished["verdict"], finished["lost"]) == ("ran", "confirmed", [])
        assert finished["worker"].endswith(":1")
        assert Evidence.read(place / "reports" / finished["evidence"]).verdict is Verdict.CONFIRMED

    def test_gpus_are_those_that_ray_gives(self, found: dict[str, Any]) -> None:
        assert found["gpus"]["reason"] == "0,1"
        assert found["shared"]["reason"] == "0"

    def test_a_job_is_placed_only_where_the_compute_capability_does(self, found: dict[str, Any]) -> None:
        assert found["placed"] == found["gpus"]["worker"]
        assert found["impossible"].startswith("1 GPU is needed with compute capability >=10.0")

    def test_a_worker_that_dies_is_lost_and_its_machine_is_not(self, found: dict[str, Any]) -> None:
        assert found["dead"] == "it was killed: by somebody, or by the kernel when memory ran out"
        assert found["left after a death"] == 2

    def test_what_fails_there_is_the_job_s_own_end(self, found: dict[str, Any]) -> None:
        assert found["no case"]["end"] == "broke"
        assert found["no case"]["reason"].startswith("No such file or directory ")

    def test_a_job_on_a_machine_that_is_lost_runs_on_another(self, found: dict[str, Any]) -> None:
        first, other = found["killed"]["one"], found["killed"]["two"]
        assert (first["end"], other["end"]) == ("ran", "ran")
        assert [lost["reason"] for lost in first["lost"]] == ["its machine left the fleet"]
        assert first["worker"] != first["lost"][0]["worker"]
        assert other["lost"] == []
        assert found["left after a kill"] == 1

    def test_leaving_interrupts_what_runs(self, found: dict[str, Any]) -> None:
        cleaned, _took_s = found["stopped"]
        assert cleaned

    def test_the_same_through_ray_s_client(self, found: dict[str, Any], place: Path) -> None:
        assert found["client"]["verdict"] == "confirmed"
        assert (place / "reports" / found["client"]["evidence"]).name == "two.venv.cpu.json"


class TestAddress:
    @pytest.mark.parametrize("address", ["ray://", "gpu-box", "http://gpu-box:1", "", "gpu box:1", "gpu-box:port"])
    def test_one_that_can_be_no_fleet(self, address: str) -> None:
        with pytest.raises(UsageError, match=r"--fleet .*: write ray://HOST:PORT, HOST:PORT, auto"):
            module.checked(address)

    @pytest.mark.parametrize("address", ["ray://gpu-box:10001", "10.0.0.1:6379", "ray://[::1]:10001", "auto", "local"])
    def test_one_that_can(self, address: str) -> None:
        assert module.checked(address) == address

    def test_without_ray_the_line_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "find_spec", lambda _name: None)
        with pytest.raises(UsageError, match=r"pip install 'gpu-casebook\[ray\]'$"):
            module.checked("auto")

    @pytest.mark.parametrize("scheme", ["", "ray://"])
    def test_nobody_there(self, scheme: str, tmp_path: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"{scheme}127.0.0.1:{probe.getsockname()[1]}"
        settings = Settings(root=str(tmp_path), reports=str(tmp_path))
        with pytest.raises(EngineError, match=f"^no fleet at {address}: Connection refused$"), Fleet(settings, address):
            pass


class TestJoining:
    """A cluster starts a server for each client, which may come up too late."""

    def test_it_is_tried_again(self) -> None:
        ray = mock.Mock(init=mock.Mock(side_effect=[ConnectionAbortedError, ConnectionAbortedError, None]))
        module._join(ray, "ray://box:10001", {})
        assert (ray.init.call_count, ray.shutdown.call_count) == (3, 2)

    def test_a_bounded_number_of_times(self) -> None:
        ray = mock.Mock(init=mock.Mock(side_effect=ConnectionAbortedError))
        with pytest.raises(ConnectionAbortedError):
            module._join(ray, "ray://box:10001", {})
        assert ray.init.call_count == 3

    def test_what_is_wrong_for_good_is_not(self) -> None:
        ray = mock.Mock(init=mock.Mock(side_effect=ValueError))
        with pytest.raises(ValueError):  # noqa: PT011 whatever it says
            module._join(ray, "ray://box:10001", {})
        assert ray.init.call_count == 1


class TestGone:
    """A cluster that went away altogether, as Ray's client tells it."""

    class Broken:
        class exceptions:  # noqa: N801 as Ray has it
            class RayError(Exception):
                pass

        def __getattr__(self, name: str) -> Any:
            raise ConnectionError("not\nconnected")

    @pytest.fixture
    def fleet(self, tmp_path: Path) -> Fleet:
        fleet = Fleet(Settings(root=str(tmp_path), reports=str(tmp_path)), "ray://gpu-box:10001")
        fleet._ray = self.Broken()
        fleet._tasks = {"ref": mock.sentinel.task}
        return fleet

    @pytest.mark.parametrize("look", [lambda fleet: fleet.machines, lambda fleet: fleet.events(1.0)])
    def test_is_one_line(self, fleet: Fleet, look: Callable[[Fleet], object]) -> None:
        with pytest.raises(EngineError) as raised:
            look(fleet)
        assert str(raised.value) == ("the fleet at ray://gpu-box:10001 went away: not connected; go on with --resume")


def host_gpu(index: int, *, name: str = "H200", aside: str | None = None) -> HostGpu:
    return HostGpu(index=index, name=name, uuid=f"GPU-{index}", compute_capability="9.0", driver="580.1", aside=aside)


class TestNodes:
    """What is made of what a node says."""

    ATTESTED = Attested(
        host="box",
        runner="0.1.0 (abc)",
        gpus=[
            host_gpu(0, aside="GPU 0 is set aside"),
            host_gpu(1),
        ],
        engines=["docker", "venv"],
    )

    def node(self, **resources: float) -> dict[str, Any]:
        return {"NodeID": "abcdef", "Resources": resources}

    def test_it_survives_the_wire(self) -> None:
        assert Attested.model_validate_json(self.ATTESTED.model_dump_json()) == self.ATTESTED

    def test_another_revision_is_refused(self) -> None:
        assert unfit(self.ATTESTED, "0.1.0 (abc)", "docker") is None
        told = unfit(self.ATTESTED, "0.1.0 (def)", None)
        assert told
        assert told.startswith("its runner is 0.1.0 (abc), and this one is 0.1.0 (def)")

    def test_one_without_the_engine_is_refused(self) -> None:
        other = self.ATTESTED.model_copy(update={"engines": ["venv"]})
        assert unfit(other, other.runner, "docker") == "the docker engine does not answer there (there are: venv)"

    def test_ray_shares_out_the_cores_and_gpus_that_it_was_given(self) -> None:
        machine = machine_of(self.node(CPU=4.0, GPU=1.0), self.ATTESTED, [])
        assert (machine.name, machine.cores, [gpu.index for gpu in machine.gpus]) == ("box", 4, [1])
        assert machine_of(self.node(CPU=4.0), self.ATTESTED, ["box"]).name == "box-abcd"
        assert machine_of(self.node(CPU=4.0), self.ATTESTED, []).gpus == []

    def test_gpus_that_the_host_does_not_show_are_as_declared(self) -> None:
        node = self.node(CPU=1.0, GPU=2.0) | {"Labels": {CAPABILITY_LABEL: "8.0"}}
        machine = machine_of(node, self.ATTESTED.model_copy(update={"gpus": []}), [])
        assert [(gpu.index, gpu.compute_capability) for gpu in machine.gpus] == [(0, "8.0"), (1, "8.0")]

    def test_one_line_says_what_a_machine_has(self) -> None:
        machine = machine_of(self.node(CPU=1.0, GPU=2.0), self.ATTESTED, [])
        assert described(machine, self.ATTESTED) == "box: 1 core, 2 x H200 (9.0), driver 580.1, docker, venv"


class TestKept:
    """What the driver does with what comes back."""

    @pytest.fixture
    def fleet(self, tmp_path: Path) -> Fleet:
        fleet = Fleet(Settings(root=str(tmp_path), reports=str(tmp_path / "reports")), "auto")
        fleet._nodes["n"] = Machine(name="box", cores=1)
        return fleet

    @pytest.fixture
    def task(self) -> _Task:
        return _Task(number=1, start=Start(job=job("rwkv6-backward")), nodes=["n"])

    @pytest.fixture
    def evidence(self) -> str:
        return (ROOT / "reports" / "evidence" / "rwkv6-backward" / "front-end.docker.cpu.json").read_text()

    def kept(self, fleet: Fleet, task: _Task, evidence: str | None) -> Finished:
        path = "../../elsewhere.json" if evidence else None
        finished = Finished(job=task.start.job, end=End.RAN, evidence=path, started=datetime.now(UTC))
        event = fleet._kept(task, Came(node="n", event=Event(job="a", finished=finished), evidence=evidence))
        assert event.finished
        assert event.worker == "box:1"
        return event.finished

    def test_where_evidence_goes_is_this_machine_s_to_say(self, fleet: Fleet, task: _Task, evidence: str) -> None:
        kept = self.kept(fleet, task, evidence)
        assert kept.evidence == "evidence/rwkv6-backward/front-end.docker.cpu.json"
        assert Evidence.read(Path(fleet._settings.reports) / str(kept.evidence)).case.id == "rwkv6-backward"

    def test_a_job_without_evidence_has_none(self, fleet: Fleet, task: _Task) -> None:
        assert self.kept(fleet, task, None).evidence is None

    def test_a_worker_that_is_gone_is_named_by_its_machine(self, fleet: Fleet, task: _Task) -> None:
        event = fleet._kept(task, Came(node="n", event=Event(job="a", lost="it ended with SIGSEGV")))
        assert (event.worker, event.lost) == ("box:1", "it ended with SIGSEGV")

    def test_a_full_disk_here_stops_the_run(
        self, fleet: Fleet, task: _Task, evidence: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_self: Evidence, path: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

        monkeypatch.setattr(Evidence, "write", full)
        kept = self.kept(fleet, task, evidence)
        assert (kept.end, kept.stops, kept.verdict) == (End.BROKE, True, None)
        assert kept.reason == "no space left on somewhere"
