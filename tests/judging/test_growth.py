import itertools
import math
import random
from collections.abc import Sequence
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failure_signature.expectation import Expectation, Growth
from failure_signature.judging.outcome import Judgement, growth, judge, observe, slope, without_jump
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, Outcome


def series(values: Sequence[float]) -> list[tuple[int, float]]:
    return list(enumerate(values))


@given(
    st.floats(-1e9, 1e9), st.floats(-1e6, 1e6), st.lists(st.integers(0, 10_000), min_size=2, max_size=30, unique=True)
)
def test_a_straight_line_has_its_own_slope(start: float, per_step: float, steps: list[int]) -> None:
    points = [(step, start + per_step * step) for step in sorted(steps)]
    assert slope(points) == pytest.approx(per_step, rel=1e-6, abs=1e-3)


def test_a_leak_in_blocks_is_a_leak() -> None:
    stairs = series([20e6 * (step // 10) for step in range(60)])
    assert slope(stairs) == pytest.approx(2e6, rel=0.1)
    assert median(after - before for (_, before), (_, after) in itertools.pairwise(stairs)) == 0


def test_memory_that_comes_and_goes_is_none() -> None:
    level = [1e9] * 20
    for step in (3, 11, 19):
        level[step] += 500e6
    assert slope(series(level)) == 0


@pytest.mark.parametrize("at", [1, 6, 10, 19])
def test_memory_taken_once_and_kept_is_told_from_a_leak(at: int) -> None:
    once = series([1e9 + 10.0 * step + (500e6 if step >= at else 0) for step in range(20)])
    assert slope(without_jump(once)) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("block", [1, 2, 4, 9])
def test_blocks_of_a_leak_are_no_jump(block: int) -> None:
    stairs = series([20e6 * (step // block) for step in range(20)])
    assert without_jump(stairs) == stairs


@pytest.mark.parametrize("values", [[], [1.0], [7.0, 7.0, 7.0], [1.0, 2.0, 3.0], [1.0, 9.0, 1.0]])
def test_without_a_jump_nothing_changes(values: list[float]) -> None:
    assert without_jump(series(values)) == series(values)


def test_noise_hardly_matters() -> None:
    noise = random.Random(1)
    assert slope(series([1e6 * step + noise.gauss(0, 2e6) for step in range(100)])) == pytest.approx(1e6, rel=0.05)


BOUND = Expectation.model_validate({"growth": {"series": "x", "per_step": "> 1e5"}})
FLAT = Expectation.model_validate({"growth": {"series": "x", "per_step": "< 1e3"}})
LEAK = [1e6 * step for step in range(12)]
STAIRS = [3e6 * (step // 3) for step in range(12)]
CACHE = [1e6 * min(step, 5) for step in range(12)]
SAWTOOTH = [
    [1e6 * ((step + phase) % period) for step in range(12)] for period in range(3, 10) for phase in range(period)
]
LATE = [0.0] * 9 + [10e6, 20e6, 30e6]


def outcome(expected: Expectation, values: Sequence[float]) -> Judgement:
    printed = "".join(f"x[{step}]={value}\n" for step, value in enumerate(values))
    result = TrialResult(stdout=printed, stderr="", duration_s=1, exit_status=0)
    return judge(expected, result, observe(result))


@pytest.mark.parametrize("values", [LEAK, STAIRS, [5e6 + value for value in LEAK]])
def test_a_leak_is_told(values: Sequence[float]) -> None:
    assert outcome(BOUND, values).outcome is Outcome.AS_EXPECTED
    assert outcome(FLAT, values).outcome is Outcome.OTHERWISE


@pytest.mark.parametrize("values", [CACHE, LATE, *SAWTOOTH])
def test_a_cache_that_fills_and_garbage_that_is_collected_are_no_leak(values: Sequence[float]) -> None:
    assert outcome(BOUND, values).outcome is Outcome.OTHERWISE


def test_what_came_of_it_is_said() -> None:
    assert outcome(BOUND, CACHE).mismatches[0].endswith("saw 0 in the later half of the steps")
    told = [outcome(BOUND, values).mismatches[0] for values in SAWTOOTH]
    assert any("saw it come and go, and 0 from the first half" in line for line in told)


def test_a_leak_that_starts_late_is_one_in_fixed() -> None:
    assert outcome(FLAT, LATE).mismatches[0].endswith("in the later half of the steps")
    assert outcome(FLAT, [7e6] * 12).outcome is Outcome.AS_EXPECTED


@pytest.mark.parametrize("values", [[], [1.0], [1, math.nan, 3], [1, math.inf, 3]])
def test_what_has_no_slope(values: list[float]) -> None:
    assert math.isnan(slope(series(values)))


def grown(declared: dict[str, object], values: Sequence[float], first: int = 0) -> float | None:
    seen = Observation(series={"x": [(first + step, value) for step, value in enumerate(values)]})
    return growth(Growth.model_validate({"series": "x", "per_step": "> 1"} | declared), seen)


def test_warm_up_is_left_out() -> None:
    warming = [*[100.0 * step for step in range(8)], *[800.0 + 5 * step for step in range(10)]]
    assert grown({"warm_up": 8}, warming) == 5
    assert grown({"warm_up": 8}, warming, first=7) == 5
    assert grown({}, warming) != 5


def test_too_few_steps_show_nothing() -> None:
    assert grown({"warm_up": 3}, range(12)) is None
    assert grown({"warm_up": 3}, range(13)) == 1
    assert grown({"steps": 3}, range(3)) == 1
    assert grown({"series": "y"}, range(100)) is None
