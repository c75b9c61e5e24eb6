"""Races, growing memory and outputs that differ, through the whole pipeline, with trials that end as the test says."""

import io
from collections.abc import Sequence

import pytest

from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest.case import find
from gpu_casebook.report.case_page import case_page
from gpu_casebook.run.options import Options
from gpu_casebook.run.pipeline import run_case
from tests.conftest import IMAGES, MANIFEST, Checkout
from tests.fakes import LOCK, FakeEngine

REPRO, FIXED = 'figures: {rel_err: "> 1e-2"}', 'figures: {rel_err: "< 1e-5"}'
CRASH = TrialResult(stdout="reached=1\n", stderr="", duration_s=0.1, signal="SIGSEGV")
RAN = TrialResult(stdout="", stderr="", duration_s=0.1, exit_status=0)
CLEAN = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)

SIGSEGV = "{signal: SIGSEGV, figures: {reached: '== 1'}}"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpus", list)


def manifest(repro: str, fixed: str = FIXED, more: str = "timeout: 2m") -> str:
    plain = MANIFEST.replace("    expect:\n      fixed: {message: all good}\n", "")
    return plain.replace(REPRO, repro).replace(FIXED, fixed).replace("timeout: 2m", more)


def go(
    checkout: Checkout, text: str, repro: Sequence[TrialResult], fixed: Sequence[TrialResult], trials: int | None = None
) -> Evidence:
    """Run the case in its environment without a GPU, render its report, and read the evidence again."""
    locks = checkout.write(text).parent / "locks"
    locks.mkdir()
    for environment in ("current", "interpreter"):
        (locks / f"{environment}.txt").write_text(LOCK)
    engine = FakeEngine({"repro.py": repro, "fixed.py": fixed})
    options = Options(environment="interpreter", trials=trials)
    run = run_case(find(checkout.root, "tiny", IMAGES), options, engine, Console(io.StringIO()))
    assert isinstance(run, Evidence)
    assert len(engine.requests) == len(run.trials)
    return Evidence.model_validate_json(run.model_dump_json())


def ran(run: Evidence) -> tuple[int, int]:
    return len(run.trials_of(Variant.REPRO)), len(run.trials_of(Variant.FIXED))


RACE = manifest("{signal: SIGSEGV, figures: {reached: '== 1'}, rate: '>= 0.3'}", more="trials: 40")


def test_a_race(checkout: Checkout) -> None:
    run = go(checkout, RACE, [CRASH, RAN, RAN, CRASH, RAN] * 8, [CLEAN])
    assert run.verdict is Verdict.CONFIRMED
    assert ran(run) == (19, 18)
    assert run.demand
    assert (run.demand.rate, run.demand.clean) == (">= 0.3", 18)
    page = case_page([run])
    assert "| rate | `>= 0.3` | 8 of 19, 95 % interval 23 to 64 % |" in page
    assert "repro: as declared in 8 of 19 runs" in page
    assert "asked of fixed: 18 clean runs" in page


def test_a_race_that_the_fix_makes_rarer(checkout: Checkout) -> None:
    run = go(checkout, RACE, [CRASH], [*[CLEAN] * 4, CRASH, CLEAN])
    assert run.verdict is Verdict.FIX_FAILS
    assert ran(run) == (7, 5)


def test_a_race_that_does_not_show(checkout: Checkout) -> None:
    run = go(checkout, RACE, [RAN], [CLEAN])
    assert run.verdict is Verdict.NOT_REPRODUCED
    assert ran(run) == (40, 0)
    assert "Was not run." in case_page([run])


def test_fewer_trials_of_a_race(checkout: Checkout) -> None:
    assert ran(go(checkout, RACE, [RAN], [CLEAN], trials=10)) == (10, 0)


def test_a_race_that_asks_too_much_of_its_fix(checkout: Checkout) -> None:
    text = RACE.replace(">= 0.3", ">= 0.1").replace("trials: 40", "trials: 50\nclean_trials: 110")
    run = go(checkout, text, [*[RAN] * 49, CRASH], [CLEAN])
    assert run.verdict is Verdict.INCONCLUSIVE
    assert "would need 1299 clean runs; the case allows 110" in run.reasons[0]
    assert ran(run) == (50, 0)


def test_an_environment_may_have_a_rate_of_its_own(checkout: Checkout) -> None:
    text = manifest(SIGSEGV, more="trials: 40").replace(
        "grade: simulated", "grade: simulated\n    expect: {repro: {rate: '>= 0.3'}}"
    )
    assert go(checkout, text, [CRASH], [CLEAN]).demand


def test_the_first_trials_may_settle_it(checkout: Checkout) -> None:
    run = go(checkout, manifest(SIGSEGV, more="trials: 20"), [CRASH, RAN], [CLEAN])
    assert run.verdict is Verdict.INCONCLUSIVE
    assert ran(run) == (2, 1)


def test_a_person_gets_as_many_trials_as_asked_for(checkout: Checkout) -> None:
    assert ran(go(checkout, manifest(SIGSEGV), [CRASH, RAN], [CRASH], trials=6)) == (6, 6)


def test_the_headline_names_the_figures_whose_bounds_the_fix_changes(checkout: Checkout) -> None:
    text = manifest("figures: {fwd: '< 1', rel_err: '> 1e-2'}", "figures: {fwd: '< 1', rel_err: '< 1e-5'}")
    run = go(checkout, text, [printing("fwd=0\nrel_err=0.25061\n")], [printing("fwd=0\nrel_err=0\n")])
    assert run.reasons[0] == (
        "Reproduces in 3 of 3 runs: ran to its end, rel_err=0.2506 (> 1e-2); the fix holds in 4 of 4."
    )


def printing(text: str) -> TrialResult:
    return TrialResult(stdout=text, stderr="", duration_s=0.1, exit_status=0)


def output(value: int) -> TrialResult:
    return printing(f"out=sha256:{value:064x}\n")


DIFFERS = manifest("differs: [out]", "same: [out]", "trials: 40")


def test_outputs_that_differ(checkout: Checkout) -> None:
    run = go(checkout, DIFFERS, [output(each) for each in range(20)], [output(7)])
    assert run.verdict is Verdict.CONFIRMED
    assert ran(run) == (8, 8)
    page = case_page([run])
    assert "| `out` | `differs between runs` | 8 values in 8 runs |" in page
    assert "| `out` | `the same in every run` | 1 value in 8 runs |" in page
    assert "repro: unlike the commonest output in 7 of 8 runs" in page


@pytest.mark.parametrize(
    ("repro", "fixed", "verdict", "trials"),
    [
        ([output(1)], [output(1)], Verdict.NOT_REPRODUCED, (40, 0)),
        ([output(each) for each in range(20)], [output(1), output(1), output(2)], Verdict.FIX_FAILS, (3, 3)),
        ([output(each) for each in range(20)], [output(1), RAN], Verdict.FIX_FAILS, (2, 2)),
        ([output(each) for each in range(20)], [output(1), printing("out=1\n")], Verdict.FIX_FAILS, (2, 2)),
        ([CRASH], [output(1)], Verdict.WRONG_FAILURE, (40, 0)),
        ([RAN], [output(1)], Verdict.NOT_REPRODUCED, (40, 0)),
    ],
)
def test_outputs_that_do_not(
    checkout: Checkout,
    repro: Sequence[TrialResult],
    fixed: Sequence[TrialResult],
    verdict: Verdict,
    trials: tuple[int, int],
) -> None:
    run = go(checkout, DIFFERS, repro, fixed)
    assert (run.verdict, ran(run)) == (verdict, trials)


def growing(per_step: float) -> TrialResult:
    return printing("".join(f"device_bytes[{step}]={5e8 + per_step * step}\n" for step in range(13)))


LEAK = manifest(
    "growth: {series: device_bytes, per_step: '> 1e6', warm_up: 3}",
    "growth: {series: device_bytes, per_step: '< 1e4', warm_up: 3}",
)


def test_memory_that_grows(checkout: Checkout) -> None:
    run = go(checkout, LEAK, [growing(2.5e6)], [growing(0)])
    assert run.verdict is Verdict.CONFIRMED
    assert [trial.growth for trial in run.trials] == [2.5e6, 0] * 3 + [0]
    assert "device_bytes grows by 2500000 per step (> 1e6); the fix holds" in run.reasons[0]
    page = case_page([run])
    assert (
        "| growth of `device_bytes` | `> 1e6 per step over 10 steps or more, the first 3 left out` "
        "| 2500000 per step |" in page
    )


@pytest.mark.parametrize(
    ("repro", "fixed", "verdict"),
    [
        (growing(0), growing(0), Verdict.NOT_REPRODUCED),
        (growing(2e6), growing(2e6), Verdict.FIX_FAILS),
        (growing(2e6), RAN, Verdict.FIX_FAILS),
        (growing(2e6), printing("device_bytes[0]=1\ndevice_bytes[9]=1\n"), Verdict.FIX_FAILS),
        (RAN, growing(0), Verdict.NOT_REPRODUCED),
        (CRASH, growing(0), Verdict.WRONG_FAILURE),
    ],
)
def test_memory_that_does_not(checkout: Checkout, repro: TrialResult, fixed: TrialResult, verdict: Verdict) -> None:
    assert go(checkout, LEAK, [repro], [fixed]).verdict is verdict
