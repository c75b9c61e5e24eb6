"""Trials side by side: which run at once, what counts, and what an interrupt leaves. The engine is a fake."""

import io
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from failure_signature.judging.decision import CLEAN
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Outcome, Verdict
from gpu_casebook import console
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines.guard import Guard
from gpu_casebook.evidence import Evidence, Sharing, evidence_path
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.places import reports_of
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run import trials
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from gpu_casebook.trial import GpuAccess, TrialRequest
from tests.conftest import IMAGES, MANIFEST, Checkout, write_locks
from tests.devices.test_hardware import H200
from tests.fakes import FIXED, REPRO, FakeEngine
from tests.run.test_pipeline import PASSED

WAIT_S = 30.0
MIB = 2**20


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch, one_after_the_other: None) -> None:
    monkeypatch.setattr(trials, "TRIAL_BYTES", 1)
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    monkeypatch.setattr(hardware, "gpus", list)


def made(checkout: Checkout, manifest: str = MANIFEST) -> Case:
    write_locks(checkout.write(manifest).parent)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def case(checkout: Checkout) -> Case:
    return made(checkout)


class Counting(FakeEngine):
    """Notes how many trials run at once; each but the first waits until so many do, or for a while."""

    def __init__(self, expected: int = 1, **ends: Sequence[TrialResult]) -> None:
        super().__init__({"repro.py": [REPRO], "fixed.py": [FIXED], **ends})
        self.now = self.most = self.begun = 0
        self.full, self.counting = threading.Event(), threading.Lock()
        self.expected = expected
        self.before_trial = self._count

    def _count(self, _request: TrialRequest) -> None:
        with self.counting:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.expected:
                self.full.set()
        if self.begun > 1:
            self.full.wait(WAIT_S)
        with self.counting:
            self.now -= 1


def go(case: Case, on: FakeEngine, **options: object) -> tuple[Evidence, str]:
    said = io.StringIO()
    result = run_case(case, Options(**options), on, Console(said))  # type: ignore[arg-type]
    assert isinstance(result, Evidence)
    return result, said.getvalue()


def order(evidence: Evidence) -> list[tuple[Variant, int]]:
    return [(trial.variant, trial.number) for trial in evidence.trials]


IN_TURN = [(variant, number) for number in (1, 2, 3) for variant in Variant] + [(Variant.FIXED, 4)]


def test_after_the_first_trial_as_many_run_at_once_as_there_are_cores(case: Case) -> None:
    on = Counting(4)
    evidence, _ = go(case, on)
    assert on.full.is_set()
    assert on.most == 4
    assert evidence.verdict is Verdict.CONFIRMED
    assert order(evidence) == IN_TURN
    assert evidence.sharing == Sharing(at_once=4)
    assert "up to 4 at once" in case_page([evidence])


def known(case: Case, longest_s: float, environment: str = "interpreter", memory_bytes: int | None = None) -> None:
    """Keep evidence with a trial that took so long, and so much of a GPU."""
    evidence, _ = go(case, FakeEngine({"repro.py": [REPRO], "fixed.py": [replace(FIXED, duration_s=longest_s)]}))
    named = evidence.environment.model_copy(update={"name": environment})
    sharing = Sharing(at_once=2, memory_bytes=memory_bytes)
    unknown = [trial.model_copy(update={"started": None}) for trial in evidence.trials]
    changes = {"environment": named, "sharing": sharing, "trials": unknown}
    evidence = evidence.model_copy(update=changes)
    evidence.write(evidence_path(reports_of(case.directory.parents[1]), evidence))


def test_where_it_is_known_how_long_it_takes_the_first_is_not_alone(case: Case) -> None:
    known(case, 1.0)
    begun, waited, four = list[TrialRequest](), list[bool](), threading.Event()

    def wait_for_four(request: TrialRequest) -> None:
        begun.append(request)
        if len(begun) == 4:
            four.set()
        waited.append(four.wait(5.0))

    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    on.before_trial = wait_for_four
    evidence, _ = go(case, on)
    assert all(waited)
    assert (evidence.verdict, order(evidence)) == (Verdict.CONFIRMED, IN_TURN)


def test_the_first_is_alone_where_trials_are_known_to_take_too_long(case: Case) -> None:
    known(case, case.manifest.timeout)
    beside: list[int] = []

    def slow(_request: TrialRequest) -> None:
        beside.append(len(on.requests))
        if len(beside) == 1:
            time.sleep(0.2)

    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    on.before_trial = slow
    go(case, on)
    assert beside[:2] == [0, 1]  # the second one began when the first had ended


@pytest.mark.parametrize(
    ("more", "waits_for"),
    [("", 5 * MIB), ("gpu_memory: 3MiB", 5 * MIB), ("gpu_memory: 8MiB", 8 * MIB), ("alone: true", None)],
)
def test_a_trial_waits_for_as_much_memory_as_it_is_known_to_take(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, more: str, waits_for: int | None
) -> None:
    known(made(checkout), 1.0, "current", 5 * MIB)
    case = made(checkout, MANIFEST.replace("gpus: 1", f"gpus: 1\n    {more}"))
    begin = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("gpu_casebook.run.pipeline.guarded", begin)
    monkeypatch.setattr(hardware, "gpus", lambda: [H200])
    with pytest.raises(KeyboardInterrupt):
        run_case(case, Options(), FakeEngine({}, GpuAccess(mode="direct")), Console(io.StringIO()))
    assert begin.call_args.kwargs["share"] == waits_for


def test_the_page_says_what_the_first_trial_took_of_the_gpu(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(guard: Guard, *asked: Any, measure: bool = False) -> TrialResult:
        if measure:
            guard.measured = 3_200_000_000
        return run(guard, *asked, measure=measure)

    run = Guard.run
    monkeypatch.setattr(Guard, "run", measured)
    evidence, _ = go(case, Counting(4))
    assert evidence.sharing == Sharing(at_once=4, memory_bytes=3_200_000_000)
    assert "up to 4 at once; the first one took 3.2 GB of the GPU" in case_page([evidence])


def test_the_next_trial_begins_as_soon_as_one_has_ended(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cores", lambda: 2)
    all_others = threading.Event()

    def first_of_fixed_is_slow(request: TrialRequest) -> None:
        if request.arguments[0] == "fixed.py" and not slow.is_set():
            slow.set()
            assert all_others.wait(WAIT_S)
        elif len(on.requests) == 5:  # of seven: one is slow, and this one
            all_others.set()

    slow = threading.Event()
    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    on.before_trial = first_of_fixed_is_slow
    evidence, _ = go(case, on)
    assert all_others.is_set()
    assert order(evidence) == IN_TURN


def test_what_goes_on_and_how_long_it_takes_is_told_meanwhile(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SILENCE_S", 0.02)
    on = FakeEngine({"repro.py": [replace(REPRO, duration_s=3.0)], "fixed.py": [FIXED]})
    on.before_trial = lambda _request: time.sleep(0.1)
    _, said = go(case, on)
    assert "tiny: 1 running (" in said
    assert "tiny: 4 running, about 6.0 s left (" in said


@pytest.mark.parametrize(
    ("manifest", "options"),
    [
        (MANIFEST.replace("failure: wrong-numbers", "failure: race"), {}),
        (MANIFEST.replace("image: cpu", "image: cpu\n    alone: true"), {}),
        (MANIFEST.replace("image: cpu", "image: cpu\n    alone: true"), {"at_once": 4}),
        (MANIFEST, {"at_once": 1}),
    ],
)
def test_one_runs_after_the_other(checkout: Checkout, manifest: str, options: dict[str, object]) -> None:
    on = Counting()
    evidence, _ = go(made(checkout, manifest), on, **options)
    assert on.most == 1
    assert evidence.sharing is None
    assert order(evidence) == IN_TURN
    assert "at once" not in case_page([evidence])


def test_a_kind_that_is_alone_may_say_otherwise(checkout: Checkout) -> None:
    manifest = MANIFEST.replace("failure: wrong-numbers", "failure: race")
    on = Counting(4)
    go(made(checkout, manifest.replace("image: cpu", "image: cpu\n    alone: false")), on)
    assert on.most == 4


def test_without_memory_for_two_one_runs_after_the_other(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "TRIAL_BYTES", 2**60)
    assert go(case, Counting())[0].sharing is None


def test_trials_that_would_not_be_done_in_time_beside_others_run_alone(case: Case) -> None:
    long = replace(REPRO, duration_s=case.manifest.timeout / trials.ROOM / 1.5)
    assert go(case, Counting(**{"repro.py": [long]}))[0].sharing is None  # type: ignore[arg-type]


def test_what_goes_otherwise_beside_others_is_repeated_alone_before_it_counts(case: Case) -> None:
    on = Counting(4, **{"repro.py": [REPRO, PASSED, PASSED, REPRO]})
    evidence, said = go(case, on)
    assert evidence.verdict is Verdict.CONFIRMED
    assert {variant: evidence.rates[variant].n for variant in Variant} == {Variant.REPRO: 4, Variant.FIXED: 6}
    assert evidence.sharing
    assert evidence.sharing.at_once == 4
    assert "repro trial 2: otherwise" in str(evidence.sharing.repeated)
    assert "repeated one after the other" in said
    page = case_page([evidence])
    assert "then repeated one after the other" in page
    shown = page.split("<summary>Output beside others of repro, run 2: otherwise</summary>")[1].split("</details>")[0]
    assert PASSED.stdout in shown


def test_what_the_machine_spoiled_and_went_well_then_is_not_repeated(case: Case) -> None:
    """It does not come of sharing that fixed alone says that the disk is full: what stands is that nobody knows."""
    full = replace(FIXED, stderr="OSError: [Errno 28] No space left on device", exit_status=1, stdout="")
    evidence, said = go(case, Counting(4, **{"fixed.py": [full, FIXED]}))
    assert evidence.verdict is Verdict.INCONCLUSIVE
    assert evidence.rates[Variant.FIXED].infra == 1
    assert "repeated" not in said


def test_a_second_chance_confirms_nothing_wrongly_more_often() -> None:
    """A fix that changes nothing, whatever share of runs fails: confirmed beside others, or when repeated."""
    repro, fixed = 3 + trials.MORE[Variant.REPRO], CLEAN + trials.MORE[Variant.FIXED]

    def wrongly(rate: float, repro: int, fixed: int) -> float:
        beside = rate**3 * (1 - rate) ** CLEAN
        return beside + (1 - beside) * rate**repro * (1 - rate) ** fixed

    rates = [step / 1000 for step in range(1001)]
    assert max(wrongly(rate, repro, fixed) for rate in rates) < 0.01
    assert max(wrongly(rate, repro - 1, fixed) for rate in rates) > 0.01
    assert max(wrongly(rate, repro, fixed - 1) for rate in rates) > 0.01


@pytest.mark.parametrize("asked", [8, 2])
def test_a_number_that_is_asked_for_is_a_bound(case: Case, asked: int) -> None:
    on = Counting(min(asked, 4))
    go(case, on, at_once=asked)
    assert on.most == min(asked, 4)  # there are four cores


def test_an_engine_on_another_machine_runs_one_after_the_other(case: Case) -> None:
    on = Counting()
    on.local = False
    assert go(case, on)[0].sharing is None


def test_what_goes_otherwise_alone_too_stands(case: Case) -> None:
    on = Counting(4, **{"fixed.py": [REPRO]})
    evidence, _ = go(case, on)
    assert evidence.verdict is Verdict.FIX_FAILS
    assert [trial.outcome for trial in evidence.trials if trial.variant is Variant.FIXED] == [Outcome.OTHERWISE]


def test_a_first_trial_that_goes_otherwise_has_none_beside_it(case: Case) -> None:
    on = Counting(**{"repro.py": [PASSED]})  # type: ignore[arg-type]
    evidence, _ = go(case, on)
    assert evidence.verdict is Verdict.NOT_REPRODUCED
    assert (on.most, evidence.sharing) == (1, None)


def test_an_interrupt_ends_what_runs(case: Case) -> None:
    ended, running = threading.Event(), threading.Event()

    class Ending(FakeEngine):
        def end_trials(self) -> None:
            ended.set()

    def wait(_request: TrialRequest) -> None:
        if len(on.requests) >= 1:
            if not running.is_set():
                running.set()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert ended.wait(WAIT_S)

    on = Ending({"repro.py": [REPRO], "fixed.py": [FIXED]})
    on.before_trial = wait
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        go(case, on)
    assert ended.is_set()
    assert time.monotonic() - begun < WAIT_S


def test_an_error_of_one_ends_the_others(case: Case) -> None:
    raised = threading.Event()

    def fail(_request: TrialRequest) -> None:
        if len(on.requests) >= 1:
            raised.set()
            raise OSError("no more processes")

    on = Counting()
    on.before_trial = fail
    with pytest.raises(OSError, match="no more processes"):
        go(case, on)


def test_where_a_rate_is_measured_a_trial_without_the_failure_is_no_reason_to_repeat(checkout: Checkout) -> None:
    manifest = MANIFEST.replace("image: cpu", "image: cpu\n    alone: false").replace(
        "repro:\n  expect:", 'repro:\n  expect:\n    rate: ">= 0.3"'
    )
    on = Counting(4, **{"repro.py": [REPRO, PASSED] * 2 + [REPRO]})
    evidence, said = go(made(checkout, manifest + "trials: 40\n"), on)
    assert evidence.verdict is Verdict.CONFIRMED
    assert evidence.sharing == Sharing(at_once=4)
    assert "repeated" not in said
