"""A GPU before and after trials: what is concluded, and what comes of it in a run. No GPU needed."""

import io
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from failure_signature.kinds import Variant
from failure_signature.trials import Outcome, Verdict, Xid
from gpu_casebook import cli
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware, kernel_log, ledger
from gpu_casebook.devices.hardware import lock_directory, why_aside
from gpu_casebook.devices.hygiene import FATAL_XIDS, SLACK_BYTES, Condition, GpuState, assess, last
from gpu_casebook.engines import guard
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.run.plan import Skipped
from gpu_casebook.trial import GpuAccess, Recipe, TrialRequest
from tests.conftest import IMAGES, Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine
from tests.run.test_pipeline import H200

GIB = 2**30
IDLE = GpuState(used_bytes=0, processes=frozenset(), remap_failed=False)
LEAK = replace(IDLE, used_bytes=3 * GIB)
LEFT = replace(LEAK, processes=frozenset({7}), ours=frozenset({7}))
STRANGER = replace(LEAK, processes=frozenset({8}))


def fault(number: int) -> Xid:
    return Xid(number=number, pci="0000:00:06", text=f"Xid {number}")


@pytest.mark.parametrize(
    ("before", "after", "xids", "condition", "reason"),
    [
        (IDLE, IDLE, [], Condition.GOOD, ""),
        (IDLE, replace(IDLE, used_bytes=SLACK_BYTES), [], Condition.GOOD, ""),
        (IDLE, replace(IDLE, used_bytes=SLACK_BYTES + 1), [], Condition.LEAKED, "no process has it"),
        (LEAK, LEAK, [], Condition.GOOD, ""),  # taken when the run began
        (LEAK, IDLE, [], Condition.GOOD, ""),
        (IDLE, LEAK, [], Condition.LEAKED, "3.22 GB more taken than at the start of this run"),
        (IDLE, STRANGER, [], Condition.SHARED, "by process 8"),
        (IDLE, replace(LEAK, processes=None), [], Condition.SHARED, "can't be seen from here"),
        (IDLE, LEFT, [], Condition.LEFTOVER, "process 7 of an earlier trial"),
        (LEFT, LEFT, [], Condition.LEFTOVER, "process 7 of an earlier trial"),
        (IDLE, replace(IDLE, ours=frozenset({7, 9})), [], Condition.LEFTOVER, "processes 7, 9 of"),
        (IDLE, GpuState(lost="the driver has lost it"), [], Condition.BROKEN, "the driver has lost it"),
        (GpuState(lost="it needs a reset"), GpuState(lost="it needs a reset"), [], Condition.BROKEN, "needs a reset"),
        (IDLE, GpuState(missing=True), [], Condition.BROKEN, "does not list it any more"),
        (GpuState(missing=True), GpuState(missing=True), [], Condition.GOOD, ""),
        (IDLE, replace(IDLE, remap_failed=True), [], Condition.BROKEN, "could not be replaced"),
        (replace(IDLE, remap_failed=True), replace(IDLE, remap_failed=True), [], Condition.GOOD, ""),
        (IDLE, IDLE, [fault(31), fault(43), fault(13)], Condition.GOOD, ""),
        (IDLE, IDLE, [fault(31), fault(79)], Condition.BROKEN, "Xid 79 in the kernel log: the GPU has fallen off"),
        (IDLE, LEFT, [fault(48)], Condition.BROKEN, "Xid 48"),
        (GpuState(), GpuState(), [], Condition.GOOD, ""),  # a driver that tells nothing
        (GpuState(), LEAK, [], Condition.GOOD, ""),
        (IDLE, GpuState(), [], Condition.GOOD, ""),
    ],
)
def test_what_is_concluded(
    before: GpuState, after: GpuState, xids: Sequence[Xid], condition: Condition, reason: str
) -> None:
    health = assess(before, after, xids)
    assert health.condition is condition
    assert reason in health.reason
    assert bool(health.reason) is (condition is not Condition.GOOD)


@pytest.mark.parametrize("number", [48, 63, 64, 74, 79, 94, 95])
def test_each_fatal_xid_is_in_words(number: int) -> None:
    assert FATAL_XIDS[number] in assess(IDLE, IDLE, [fault(number)]).reason


def test_only_memory_that_nobody_has_breaks_a_gpu_by_staying() -> None:
    states = (IDLE, LEAK, STRANGER, LEFT)
    ended = [last(assess(IDLE, state, [])).condition for state in states]
    assert ended == [Condition.GOOD, Condition.BROKEN, Condition.SHARED, Condition.LEFTOVER]


class Driver:
    """States that reading a GPU gives in turn, the last one for ever; `waits` counts the pauses between."""

    def __init__(self, *states: GpuState) -> None:
        self.states, self.waits = list(states), 0

    def read(self, uuid: str) -> GpuState:
        assert uuid == H200.uuid
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def sleep(self, _seconds: float) -> None:
        self.waits += 1


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver(IDLE)
    monkeypatch.setattr(guard, "read", fake.read)
    monkeypatch.setattr(guard, "time", SimpleNamespace(sleep=fake.sleep, time_ns=time.time_ns))
    return fake


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", lambda: [replace(H200, pci="0000:00:06.0", aside=why_aside(H200.uuid))])


@pytest.fixture
def case(checkout: Checkout, change: Callable[[str, str], str]) -> Case:
    """A case that has its GPU for itself."""
    directory = checkout.write(change("gpus: 1", "gpus: 1\n    alone: true")).parent
    write_locks(directory)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def engine() -> FakeEngine:
    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}, GpuAccess(mode="direct"))
    on.attested = on.attested[:-1] + ', "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}'
    return on


def go(case: Case, on: FakeEngine) -> tuple[Evidence, str]:
    said = io.StringIO()
    result = run_case(case, Options(environment="current", probes=False), on, Console(said))
    assert isinstance(result, Evidence), result
    return result, said.getvalue()


def after(scripts: int, do: Callable[[], None]) -> Callable[[TrialRequest], None]:
    """Do it while trial number `scripts` runs."""
    seen: list[TrialRequest] = []

    def before_trial(request: TrialRequest) -> None:
        seen.append(request)
        if len(seen) == scripts:
            do()

    return before_trial


def test_a_good_gpu_is_no_hindrance(case: Case, engine: FakeEngine, driver: Driver) -> None:
    evidence, _ = go(case, engine)
    assert evidence.verdict is Verdict.CONFIRMED
    assert driver.waits == 0
    assert why_aside(H200.uuid) is None


def test_memory_that_comes_back_is_waited_for(case: Case, engine: FakeEngine, driver: Driver) -> None:
    engine.before_trial = after(2, lambda: driver.states.__setitem__(slice(None), [LEAK, LEAK, LEAK, IDLE]))
    assert go(case, engine)[0].verdict is Verdict.CONFIRMED
    assert driver.waits == 3
    assert why_aside(H200.uuid) is None


def test_a_gpu_whose_memory_stays_taken_is_set_aside(case: Case, engine: FakeEngine, driver: Driver) -> None:
    engine.before_trial = after(2, lambda: driver.states.__setitem__(slice(None), [LEAK]))
    evidence, said = go(case, engine)
    assert driver.waits == guard.POLLS
    assert [trial.outcome for trial in evidence.trials] == [Outcome.AS_EXPECTED, Outcome.INFRA]
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert len(engine.requests) == 2
    spoiled = evidence.trials[-1]
    assert spoiled.infra == why_aside(H200.uuid)
    assert spoiled.observation.exit_status is None
    assert "GPU 0 is set aside since " in (spoiled.infra or "")
    assert "no process has it; `nox -s clean` takes it back" in (spoiled.infra or "")
    assert "no more trials: GPU 0 is set aside" in said


def test_a_fix_is_not_blamed_for_a_gpu_that_broke_under_it(
    case: Case, engine: FakeEngine, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    @contextmanager
    def log() -> Iterator[Callable[[], str]]:
        told = 0

        def new() -> str:
            nonlocal told
            told, fresh = len(lines), lines[told:]
            return "\n".join(fresh)

        yield new

    monkeypatch.setattr(kernel_log, "kernel_log", log)
    engine._ends["fixed.py"] = [REPRO]
    engine.before_trial = after(4, lambda: lines.append("NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus."))
    evidence, _ = go(case, engine)
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert [trial.infra is None for trial in evidence.trials] == [True, True, True, False]
    assert [it.number for it in evidence.trials[-1].xids] == [79]


def test_what_another_gpu_suffers_is_not_ours(driver: Driver) -> None:
    lines = [Xid(number=79, pci="0000:07:00", text="")]
    on = guard.Guard(FakeEngine({}), [replace(H200, pci="0000:00:06.0")], lambda: lines, print)
    assert not on._is_over(on._faults())


def test_a_process_that_stays_ends_the_trials_but_breaks_no_gpu(case: Case, engine: FakeEngine, driver: Driver) -> None:
    engine.before_trial = after(1, lambda: driver.states.__setitem__(slice(None), [LEFT]))
    evidence, _ = go(case, engine)
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert evidence.trials[-1].infra == "GPU 0: process 7 of an earlier trial still on it"
    assert len(engine.requests) == 1
    assert why_aside(H200.uuid) is None


def test_on_a_shared_gpu_others_trials_and_memory_are_no_fault(
    checkout: Checkout, engine: FakeEngine, driver: Driver, change: Callable[[str, str], str]
) -> None:
    path = checkout.write(change("gpus: 1", "gpus: 1\n    alone: false"))
    write_locks(path.parent)
    driver.states = [IDLE, LEFT, LEAK, STRANGER]
    evidence, said = go(find(checkout.root, "tiny", IMAGES), engine)
    assert evidence.verdict is Verdict.CONFIRMED
    assert driver.waits == 0
    assert "more taken" not in said


def test_a_shared_gpu_that_breaks_is_set_aside_all_the_same(driver: Driver) -> None:
    driver.states = [GpuState(lost="it needs a reset")]
    with guard.guarded(FakeEngine({"repro.py": [REPRO]}), [0], print, share=0) as on:
        result = on.run(
            on.engine.prepare(Recipe(image="cpu", lock=""), print),
            TrialRequest(files={}, arguments=["repro.py"], gpus=[0]),
        )
    assert "needs a reset" in (result.infra or "")
    assert why_aside(H200.uuid)


@pytest.mark.usefixtures("driver")
def test_trials_of_the_run_that_began_first_come_first() -> None:
    order = list[str]()
    engine = FakeEngine({"repro.py": [REPRO]})
    engine.before_trial = lambda request: order.append(request.arguments[-1])
    prepared = engine.prepare(Recipe(image="cpu", lock=""), print)
    waits = queue.Queue[str]()
    runs = {
        name: guard.Guard(engine, [H200], list, waits.put, share=H200.memory_bytes * 2 // 3)
        for name in ("early", "late", "at the gate")
    }
    with ThreadPoolExecutor(3) as pool, ledger.hold([0], pytest.fail):
        for name in reversed(runs):
            pool.submit(runs[name].run, prepared, TrialRequest(files={}, arguments=["repro.py", name], gpus=[0]))
            waits.get(timeout=60)
    assert order == ["at the gate", "early", "late"]


@pytest.mark.usefixtures("driver")
def test_what_has_no_gpu_does_not_wait_for_who_is_alone_on_it() -> None:
    request = TrialRequest(files={}, arguments=["repro.py"])
    with guard.guarded(FakeEngine({"repro.py": [REPRO]}), [0], pytest.fail, share=0) as on, ledger.hold([0], print):
        result = on.look(on.engine.prepare(Recipe(image="cpu", lock=""), print), request)
    assert result.stderr == REPRO.stderr


def test_what_a_killed_run_left_on_the_gpu_is_removed_first(
    case: Case, engine: FakeEngine, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.states = [LEFT]

    def sweep(*, dry_run: bool = False) -> Sequence[str]:
        assert not dry_run
        driver.states = [IDLE]
        return ["process 7"]

    monkeypatch.setattr(engine, "sweep", sweep)
    evidence, said = go(case, engine)
    assert evidence.verdict is Verdict.CONFIRMED
    assert "left by a run that was killed: process 7" in said


def test_what_it_left_is_not_taken_for_the_start(driver: Driver) -> None:
    driver.states = [LEFT, IDLE, LEAK]
    on = guard.Guard(FakeEngine({}), [H200], list, print)
    assert not on._is_over(on._faults())
    assert on._is_over(on._faults())


def test_strangers_are_said_once_and_left_alone(case: Case, engine: FakeEngine, driver: Driver) -> None:
    engine.before_trial = after(1, lambda: driver.states.__setitem__(slice(None), [STRANGER]))
    evidence, said = go(case, engine)
    assert evidence.verdict is Verdict.CONFIRMED
    assert said.count("by process 8") == 1
    assert driver.waits == guard.POLLS
    assert why_aside(H200.uuid) is None


def test_a_gpu_set_aside_is_not_chosen_and_clean_takes_it_back(
    case: Case, engine: FakeEngine, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware.set_aside(H200.uuid, 0, "it needs a reset")
    hardware.set_aside(H200.uuid, 0, "a later reason")
    result = run_case(case, Options(environment="current"), engine, Console(io.StringIO()))
    assert isinstance(result, Skipped)
    assert "GPU 0 is set aside since " in result.reasons[0]
    assert "UTC: it needs a reset; `nox -s clean` takes it back" in result.reasons[0]
    assert engine.requests == []
    assert hardware.suitable(case.environment("current"), [*hardware.gpus(), replace(H200, index=1)]) == [1]

    monkeypatch.setattr("gpu_casebook.engines.registry.reachable", lambda _root: [])
    done = CliRunner().invoke(cli.app, ["clean"])
    assert done.exit_code == 0, done.output
    assert "taken back: GPU-0 (GPU 0 is set aside since" in done.output
    assert go(case, engine)[0].verdict is Verdict.CONFIRMED


def test_set_aside_while_the_run_waited_for_its_lock(case: Case, engine: FakeEngine, driver: Driver) -> None:
    engine.before_trial = after(1, lambda: hardware.set_aside(H200.uuid, 0, "it needs a reset"))
    evidence, _ = go(case, engine)
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert len(evidence.trials_of(Variant.REPRO)) == 1


def test_a_note_that_says_nothing_still_counts() -> None:
    (hardware.lock_directory() / "GPU-0.aside").write_text("")
    assert why_aside("GPU-0") == "GPU GPU-0 is set aside; `nox -s clean` takes it back"


def test_notes_lie_beside_the_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(hardware, "lock_directory", lock_directory)
    hardware.set_aside("GPU-1", 1, "it needs a reset")
    assert (tmp_path / "casebook-gpus" / "GPU-1.aside").stat().st_mode & 0o666 == 0o666


def test_of_an_engine_elsewhere_it_is_said_that_nothing_is_known(driver: Driver) -> None:
    engine, said = FakeEngine({"repro.py": [REPRO]}), list[str]()
    engine.local = False
    driver.states = [GpuState(lost="the driver has lost it")]
    with guard.guarded(engine, [0], said.append) as on:
        request = TrialRequest(files={}, arguments=["repro.py"], gpus=[0])
        seen = on.run(on.engine.prepare(None, print), request)  # type: ignore[arg-type]
        assert replace(seen, started=None) == REPRO
    assert said == ["GPUs: not checked between trials, since the engine is on another machine"]


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


class Nvml(SimpleNamespace):
    """As much of pynvml as is used. An answer that is a number is that error."""

    NVMLError = NvmlError
    NVML_ERROR_NOT_FOUND = 6

    def __init__(self, **answers: Any) -> None:
        super().__init__(open=0, answers=answers)

    def nvmlInit(self) -> None:  # noqa: N802
        self.answer("Init")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        if not self.open:
            raise NvmlError(1)
        self.open -= 1

    def answer(self, what: str, default: Any = None) -> Any:
        given = self.answers.get(what, default)
        if isinstance(given, int):
            raise NvmlError(given)
        return given

    def __getattr__(self, name: str) -> Callable[[object], Any]:
        absent = 13  # NVML_ERROR_FUNCTION_NOT_FOUND
        return lambda _handle: self.answer(name.removeprefix("nvmlDevice"), absent)


FULL = {
    "GetHandleByUUID": "handle",
    "GetMemoryInfo": SimpleNamespace(used=5),
    "GetRemappedRows": (0, 0, 0, 1),
    "GetComputeRunningProcesses": [SimpleNamespace(pid=7)],
    "GetGraphicsRunningProcesses": [SimpleNamespace(pid=8)],
}


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ({"Init": 12}, GpuState()),
        ({"GetHandleByUUID": 15}, GpuState(lost="the driver has lost it")),
        ({"GetHandleByUUID": 16}, GpuState(lost="it needs a reset")),
        ({"GetHandleByUUID": 6}, GpuState(missing=True)),
        ({"GetHandleByUUID": 999}, GpuState()),
        ({"GetHandleByUUID": "handle"}, GpuState()),
        ({**FULL, "GetMemoryInfo": 15}, GpuState(lost="the driver has lost it")),
        (FULL, GpuState(used_bytes=5, processes=frozenset({7, 8}), ours=frozenset({7}), remap_failed=True)),
    ],
)
def test_each_reading_is_optional(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], state: GpuState) -> None:
    nvml = Nvml(**answers)
    monkeypatch.setattr(guard, "pynvml", nvml)
    monkeypatch.setattr(guard, "_sees_every_process", lambda: True)
    monkeypatch.setattr(guard, "_ours", lambda pid: pid == 7)
    assert guard.read("GPU-0") == state
    assert nvml.open == 0


def test_in_a_space_of_pids_of_its_own_nobody_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "pynvml", Nvml(**FULL))
    monkeypatch.setattr(guard, "_sees_every_process", lambda: False)
    assert guard.read("GPU-0").processes is None


@pytest.mark.parametrize(
    ("variables", "ours"),
    [
        ({"HOME": "/home/case", "USER": "case", "PYTHONDONTWRITEBYTECODE": "1"}, True),
        ({"HOME": "/tmp/casebook-0/ab12cd34/home", "USER": "case", "PYTHONDONTWRITEBYTECODE": "1"}, True),
        ({"HOME": "/home/case", "USER": "case"}, False),
        ({"HOME": "/root", "USER": "case", "PYTHONDONTWRITEBYTECODE": "1"}, False),
        ({}, False),
    ],
)
def test_trials_are_known_by_their_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, ours: bool
) -> None:
    monkeypatch.setattr(psutil, "Process", lambda _pid: SimpleNamespace(environ=lambda: variables))
    assert guard._ours(7) is ours


def test_both_engines_mark_their_trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gpu_casebook.engines.docker import options
    from gpu_casebook.engines.venv import engine

    own = engine._variables(
        tmp_path / "casebook-0" / "ab12cd34", Path("/env/bin/python"), TrialRequest(files={}, arguments=[])
    )
    for variables in (options.TRIAL_VARIABLES, own):
        monkeypatch.setattr(psutil, "Process", lambda _pid, seen=variables: SimpleNamespace(environ=lambda: seen))
        assert guard._ours(7)
