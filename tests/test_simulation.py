import math
import random
from dataclasses import replace

import pytest

from failure_signature.bounds import Bound
from failure_signature.judging.decision import CLEAN, Tally, Terms, decide
from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.manifest.model import DIFFERING, TRIALS
from gpu_casebook.manifest.rules import breaches
from tests.simulation import (
    DESIGNS,
    OUTPUTS,
    RATES,
    SEED,
    Counted,
    Design,
    with_plain_estimate,
    worst,
    worst_of_two_outputs,
    wrongly_the_same,
)
from tests.synthetic import trials

ALL = [Design(asked) for asked in DESIGNS]


def name(asked: Terms) -> str:
    return f"{asked.rate} in {asked.trials}"


each_design = pytest.mark.parametrize("design", ALL, ids=map(name, DESIGNS))


@each_design
def test_a_fix_that_fixes_nothing_is_hardly_ever_confirmed(design: Design) -> None:
    assert worst(design)[0] <= design.asked.alpha


@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("asked", [DESIGNS[2], DESIGNS[3], DESIGNS[5]], ids=name)
def test_whatever_risk_is_taken(asked: Terms, alpha: float) -> None:
    assert worst(Design(replace(asked, alpha=alpha, clean_trials=10_000)))[0] <= alpha


def test_nor_is_it_in_thousands_of_drawn_cases() -> None:
    chance = random.Random(SEED)
    for design in ALL:
        wrong = sum(design.draw(p, p, chance) for p in RATES for _ in range(1000))
        expected = sum(design.chances(p, p).confirmed for p in RATES) * 1000
        assert wrong <= design.asked.alpha * len(RATES) * 1000
        assert abs(wrong - expected) < 5 * max(expected, 1) ** 0.5


@each_design
def test_a_fix_that_holds_is_always_confirmed_where_the_failure_shows(design: Design) -> None:
    for p in RATES:
        chances = design.chances(p, 0.0)
        assert chances.confirmed == chances.reproduced
    assert design.chances(1.0, 0.0).confirmed == 1.0


@pytest.mark.parametrize(("p", "least"), [(0.3, 0.97), (0.4, 0.99), (0.7, 0.999)])
def test_a_race_that_shows_as_often_as_declared_is_confirmed(p: float, least: float) -> None:
    assert ALL[2].chances(p, 0.0).confirmed >= least


def test_a_rate_brought_down_by_half_is_no_fix() -> None:
    assert all(design.chances(p, p / 2).confirmed < 0.04 for design in ALL for p in RATES)


@pytest.mark.parametrize("asked", DESIGNS, ids=name)
def test_with_the_plain_estimate_it_would_be_confirmed_far_more_often(asked: Terms) -> None:
    assert worst(with_plain_estimate(asked))[0] > 4 * asked.alpha


@pytest.mark.parametrize("shares", OUTPUTS.values(), ids=OUTPUTS)
def test_outputs_that_still_differ_are_hardly_ever_taken_for_equal(shares: list[float]) -> None:
    wrong, _ = wrongly_the_same(shares, 1000, random.Random(SEED))
    assert wrong <= 0.01


def accepted(rate: float, trials: int, alpha: float, clean: int) -> Terms | None:
    """The design of such a manifest; None where the rules refuse it."""
    manifest = {"trials": trials, "alpha": alpha, "clean_trials": clean}
    repro = {"expect": {"signal": "SIGABRT", "rate": f">= {rate}"}}
    told = breaches({**manifest, "repro": repro, "fixed": {"expect": {"message": "all good"}}}, directory="x")
    asked = Terms(trials=trials, rate=Bound.parse(f">= {rate}"), alpha=alpha, clean_trials=clean)
    return None if any("rate" in where for where, _ in told) else asked


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 1.0])
def test_no_manifest_that_the_rules_accept_confirms_such_a_fix_more_often_than_alpha(rate: float) -> None:
    """Nor is one accepted that could hardly be confirmed: where the rate is as declared, and the fix holds."""
    least = next(n for n in range(1, 1000) if accepted(rate, n, 0.2, 10_000))
    assert accepted(rate, least - 1, 0.01, 10_000) is None
    designs = [
        accepted(rate, n, alpha, clean)
        for n in (least, least + 1, math.ceil(12 / rate))
        for alpha in (0.01, 0.05)
        for clean in (20, 200, 10_000)
    ]
    for asked in filter(None, designs):
        design = Design(asked)
        assert worst(design, 80)[0] <= asked.alpha, asked
        assert design.chances(rate, 0.0).confirmed > 0.35, asked


@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize("clean", [200, 10_000])
def test_nor_does_one_whose_outputs_differ(alpha: float, clean: int) -> None:
    def design(trials: int) -> Terms:
        return Terms(trials=trials, differs=("out",), same=("out",), alpha=alpha, clean_trials=clean)

    assert worst_of_two_outputs(design(DIFFERING)) <= alpha
    assert worst_of_two_outputs(design(2)) > 0.01


def test_a_case_without_a_rate_says_that_it_fails_every_time() -> None:
    """A race that should have declared its rate hardly slips through; with three trials of either, one in 64 would."""
    assert worst(Design(Terms(trials=TRIALS))) == pytest.approx((1 / 64, 0.5))
    for number in range(TRIALS, 20):
        assert worst(Design(Terms(trials=number, clean=CLEAN)))[0] < 0.0085
    assert Design(Terms(trials=3)).chances(1.0, 1.0).confirmed == 0


@pytest.mark.parametrize("asked", [*DESIGNS, Terms(trials=3, clean=CLEAN)])
def test_what_is_summed_up_is_what_trials_come_to(asked: Terms) -> None:
    for k, n in ((0, 3), (1, 1), (1, 3), (2, 3), (3, 3), (6, 6), (5, 17), (8, 20)):
        if n > asked.trials:
            continue
        repro = "G" * k + "P" * (n - k)
        real, counted = Tally(trials(repro), asked), Counted((), asked, k, n)
        assert counted.wants(Variant.REPRO) == real.wants(Variant.REPRO)
        assert (clean := counted.most(Variant.FIXED)) == real.most(Variant.FIXED)
        if not real.wants(Variant.REPRO):
            assert (decide(trials(repro, "G" * clean), asked).verdict is Verdict.CONFIRMED) == (clean > 0)
