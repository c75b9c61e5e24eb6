"""What a trial takes of a GPU. Processes are real; a driver's library that answers as NVML does stands in."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from failure_signature.result import TrialResult
from gpu_casebook.devices import hardware, ledger, meter
from gpu_casebook.devices.hygiene import GpuState
from gpu_casebook.devices.meter import Meter
from gpu_casebook.engines import guard
from gpu_casebook.trial import Recipe, TrialRequest
from tests.devices.test_hardware import A100, H200, LostError
from tests.fakes import FakeEngine

GIB = 2**30


class Nvml(SimpleNamespace):
    """What runs on which GPU, as {uuid: {pid: bytes}}; the driver is lost where `there` is not set."""

    NVMLError = LostError

    def __init__(self) -> None:
        super().__init__(running={}, there=True, open=0, asked=0)

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.there:
            raise LostError
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, uuid: str) -> Sequence[Any]:  # noqa: N802
        self.asked += 1
        return [SimpleNamespace(pid=pid, usedGpuMemory=taken) for pid, taken in self.running.get(uuid, {}).items()]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setattr(meter, "pynvml", nvml)
    monkeypatch.setattr(meter, "_PAUSE_S", 0.01)
    return nvml


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Callable[[Mapping[str, str]], int]:
    """Start a process with these variables."""

    def started(variables: Mapping[str, str]) -> int:
        one = subprocess.Popen(
            [sys.executable, "-S", "-c", "print(flush=True); input()"], stdin=-1, stdout=-1, env=variables
        )
        assert one.stdout
        one.stdout.readline()
        request.addfinalizer(lambda: one.communicate(b"\n"))
        return one.pid

    return started


def looked(driver: Nvml, gpus: int) -> None:
    """Wait until each of so many GPUs has been looked at again."""
    after = driver.asked + 2 * gpus
    deadline = time.monotonic() + 10
    while driver.asked < after and time.monotonic() < deadline:
        time.sleep(0.005)
    assert driver.asked >= after


def test_the_most_that_the_processes_of_the_trial_took(
    driver: Nvml, process: Callable[[Mapping[str, str]], int]
) -> None:
    with Meter(["GPU-0", "GPU-1"]) as one:
        ours, child = process(one.variables), process(one.variables)
        others, gone = process(Meter([]).variables), 2**22 + 1
        for running in (
            {"GPU-0": {ours: 3 * GIB, child: GIB, others: 9 * GIB, gone: 9 * GIB}},
            {"GPU-0": {ours: GIB}, "GPU-1": {child: 2 * GIB}},
        ):
            driver.running = running
            looked(driver, 2)
    assert one.peak_bytes == 4 * GIB
    assert driver.open == 0


def test_what_was_not_seen_is_unknown(driver: Nvml, process: Callable[[Mapping[str, str]], int]) -> None:
    with Meter(["GPU-0"]) as one:
        driver.running = {"GPU-0": {process({}): GIB, process(one.variables): None}}
        looked(driver, 1)
    assert one.peak_bytes is None


def test_no_driver_is_no_error(driver: Nvml) -> None:
    driver.there = False
    with Meter(["GPU-0"]) as one:
        pass
    assert one.peak_bytes is None


class Card:
    """A guard on two GPUs, and what its trials wait for: bytes, as the ledger is asked for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nvml: Nvml, share: int) -> None:
        self.rooms: list[int | None] = []
        self.requests: list[TrialRequest] = []
        monkeypatch.setattr(hardware, "gpus", lambda: [H200, A100])
        monkeypatch.setattr(guard, "read", lambda _uuid: GpuState())
        monkeypatch.setattr(ledger, "hold", self._hold)
        engine = FakeEngine({})
        monkeypatch.setattr(engine, "run", self._run)
        self.nvml = nvml
        self.guard = guard.Guard(engine, [H200], list, print, share=share)
        self.prepared = engine.prepare(Recipe(image="cpu", lock=""), print)
        self.takes: Callable[[Mapping[str, str]], Mapping[int, int]] = lambda _variables: {}

    def _hold(self, _gpus: Sequence[int], _wait: Any, room: int | None, _pause: Any, _since: int) -> Any:
        self.rooms.append(room)
        return nullcontext()

    def _run(self, _prepared: Any, request: TrialRequest) -> TrialResult:
        self.requests.append(request)
        self.nvml.running = {H200.uuid: self.takes(request.variables)}
        if meter.VARIABLE in request.variables:
            looked(self.nvml, 1)
        return TrialResult(stdout="", stderr="", duration_s=0.0, exit_status=0)

    def trial(self, *, measure: bool = False) -> None:
        request = TrialRequest(files={}, arguments=["repro.py"], gpus=[0], variables={"OWN": "1"})
        self.guard.run(self.prepared, request, measure=measure)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, driver: Nvml) -> Callable[[int], Card]:
    return lambda share: Card(monkeypatch, driver, share)


def test_later_trials_wait_for_as_much_as_the_measured_one_took(
    card: Callable[[int], Card], process: Callable[[Mapping[str, str]], int]
) -> None:
    one = card(GIB)
    one.takes = lambda variables: {process(variables): 5 * GIB}
    one.trial(measure=True)
    one.trial()
    assert one.rooms == [GIB, 5 * GIB]
    assert one.guard.measured == 5 * GIB
    # Only what is measured is marked, and keeps its own variables.
    assert [sorted(request.variables) for request in one.requests] == [[meter.VARIABLE, "OWN"], ["OWN"]]


def test_what_is_declared_is_the_least(
    card: Callable[[int], Card], process: Callable[[Mapping[str, str]], int]
) -> None:
    one = card(8 * GIB)
    one.takes = lambda variables: {process(variables): GIB}
    one.trial(measure=True)
    one.trial()
    assert one.rooms == [8 * GIB, 8 * GIB]


def test_what_nobody_saw_is_not_waited_for(card: Callable[[int], Card]) -> None:
    one = card(GIB)
    one.trial(measure=True)
    one.trial()
    assert one.rooms == [GIB, GIB]
    assert one.guard.measured is None


def test_a_trial_that_is_tried_again_is_measured_again(
    card: Callable[[int], Card], process: Callable[[Mapping[str, str]], int]
) -> None:
    one = card(0)
    one.trial(measure=True)
    one.takes = lambda variables: {process(variables): 3 * GIB}
    one.trial(measure=True)
    one.trial()
    assert one.rooms == [0, 0, 3 * GIB]
