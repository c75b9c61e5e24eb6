import random
from dataclasses import replace

import pytest

from gpu_casebook.judging.decision import Terms
from tests.simulation import DESIGNS, OUTPUTS, RATES, SEED, Design, with_plain_estimate, worst, wrongly_the_same

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


def test_a_case_without_a_rate_says_that_it_fails_every_time() -> None:
    """Its three trials do not tell a race that should have declared its rate: at worst one in 64 slips through."""
    wrong, at = worst(Design(Terms(trials=3)))
    assert (wrong, at) == pytest.approx((1 / 64, 0.5))
    assert Design(Terms(trials=3)).chances(1.0, 1.0).confirmed == 0
