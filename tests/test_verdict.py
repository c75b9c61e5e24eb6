import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import verdict
from runner.evidence import Observation, Outcome, Trial, Variant, Verdict
from runner.rates import Terms, clean_trials_needed, rates, wilson
from runner.verdict import Decision, skipped

GOOD, INFRA = Outcome.AS_EXPECTED, Outcome.INFRA
RAN = Observation(exit_status=0)
FAILED = Observation(exit_status=1, exception="ModuleNotFoundError", message="No module named 'triton'")
BROKEN = Observation(
    exit_status=1, exception="triton.compiler.errors.CompilationError", message="at 1:1:\nx\nNo broadcast"
)


def decide(trials: Sequence[Trial], needed: int) -> Decision:
    """Of a case that declares no rate."""
    return verdict.decide(trials, Terms(trials=needed))


def trial(variant: Variant, outcome: Outcome, observation: Observation | None = None) -> Trial:
    if observation is None:
        observation = BROKEN if (variant, outcome) == (Variant.REPRO, GOOD) else RAN
    wrong = ["exit status: expected 0, saw 1"] if outcome is Outcome.OTHERWISE else []
    return Trial(
        variant=variant,
        number=1,
        outcome=outcome,
        mismatches=wrong,
        infra="the disk is full" if outcome is INFRA else None,
        observation=observation,
        duration_s=1.0,
        stdout="",
        stderr="",
    )


def repro(*outcomes: Outcome, observation: Observation | None = None) -> list[Trial]:
    return [trial(Variant.REPRO, outcome, observation) for outcome in outcomes]


def fixed(*outcomes: Outcome, observation: Observation | None = None) -> list[Trial]:
    return [trial(Variant.FIXED, outcome, observation) for outcome in outcomes]


def test_confirmed_when_all_of_both_are_as_expected() -> None:
    decision = decide(repro(GOOD, GOOD, GOOD) + fixed(GOOD, GOOD, GOOD), 3)
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.reasons == (
        "Reproduces in 3 of 3 runs: triton.compiler.errors.CompilationError: No broadcast; the fix holds in 3 of 3.",
    )
    assert (decision.rates[Variant.REPRO].k, decision.rates[Variant.REPRO].n) == (3, 3)


def test_not_reproduced_when_repro_ran_to_its_end() -> None:
    ran = repro(Outcome.OTHERWISE, Outcome.OTHERWISE, observation=RAN)
    decision = decide(ran + fixed(GOOD, GOOD), 2)
    assert decision.verdict is Verdict.NOT_REPRODUCED
    assert decision.reasons[0] == "Does not reproduce: repro ran to its end in 2 of 2 runs."
    assert decision.reasons[1] == "repro: exit status: expected 0, saw 1 (2 of 2)"


@pytest.mark.parametrize(
    "end",
    [
        FAILED,
        Observation(signal="SIGSEGV"),
        Observation(signal="SIGKILL", timed_out=True),
        Observation(exit_status=0, timed_out=True),
        Observation(signal="SIGKILL", out_of_memory=True),
    ],
)
def test_wrong_failure_as_soon_as_one_trial_failed_in_another_way(end: Observation) -> None:
    trials = repro(Outcome.OTHERWISE, observation=RAN) + repro(Outcome.OTHERWISE, observation=end)
    assert decide(trials + fixed(GOOD, GOOD), 2).verdict is Verdict.WRONG_FAILURE


def test_wrong_failure_says_what_was_seen() -> None:
    decision = decide(repro(Outcome.OTHERWISE, observation=FAILED) + fixed(GOOD), 1)
    expected = "Fails in another way than declared in 1 of 1 runs: ModuleNotFoundError: No module named 'triton'."
    assert decision.reasons[0] == expected


def test_fix_fails_when_any_fixed_trial_is_otherwise() -> None:
    decision = decide(repro(GOOD, GOOD) + fixed(GOOD, Outcome.OTHERWISE), 2)
    assert decision.verdict is Verdict.FIX_FAILS
    assert decision.reasons[0].endswith("the fix holds in 1 of 2 only.")


def test_inconclusive_when_repro_does_not_fail_every_time() -> None:
    trials = repro(GOOD) + repro(Outcome.OTHERWISE, Outcome.OTHERWISE, observation=RAN)
    decision = decide(trials + fixed(GOOD, GOOD, GOOD), 3)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "in 1 of 3 runs only" in decision.reasons[0]


@pytest.mark.parametrize(
    ("trials", "who"),
    [
        (repro(INFRA, INFRA) + fixed(GOOD, GOOD), "0 of repro"),
        (repro(GOOD, GOOD) + fixed(GOOD, INFRA), "1 of fixed"),
        (repro(GOOD, GOOD), "0 of fixed"),
        ([], "0 of repro"),
    ],
)
def test_inconclusive_when_too_few_runs_count(trials: Sequence[Trial], who: str) -> None:
    decision = decide(trials, 2)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reasons[0].startswith(f"Too few runs count: {who}, where 2 are needed")


def test_no_trials_confirm_nothing_even_where_none_is_needed() -> None:
    assert decide([], 0).verdict is Verdict.INCONCLUSIVE


def test_the_machines_fault_is_told_apart() -> None:
    decision = decide(repro(GOOD, INFRA, INFRA) + fixed(GOOD), 1)
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.reasons[1] == "repro: not counted, the machine was to blame: the disk is full (2 times)"
    assert decision.rates[Variant.REPRO].infra == 2


def test_several_endings_are_counted() -> None:
    trials = repro(GOOD, GOOD) + repro(GOOD, observation=Observation(signal="SIGSEGV"))
    expected = "CompilationError: No broadcast (2 of 3, the others in 1 other ways)"
    assert expected in decide(trials + fixed(GOOD), 1).reasons[0]


def test_a_failure_without_a_crash_is_told_by_its_figures() -> None:
    figures = [{"fwd": 1.25e-7, "dq": 0.25, "x": 1}, {"fwd": 1.25e-7, "dq": 0.228, "x": math.nan}]
    seen = [Observation(exit_status=0, figures=each) for each in figures]
    trials = [*repro(GOOD, observation=seen[0]), *repro(GOOD, observation=seen[1]), *fixed(GOOD, GOOD)]
    expected = "Reproduces in 2 of 2 runs: ran to its end, fwd=1.25e-07, dq=0.228 to 0.25, 1 more figure; the fix"
    assert decide(trials, 2).reasons[0].startswith(expected)


def test_skipped_names_every_environment() -> None:
    decision = skipped(["upstream: no GPU", "current: no GPU"])
    assert decision.verdict is Verdict.SKIPPED
    assert decision.reasons[1:] == ("upstream: no GPU", "current: no GPU")


observations = st.sampled_from([RAN, FAILED, BROKEN, Observation(signal="SIGABRT")])
any_trials = st.lists(
    st.builds(trial, st.sampled_from(Variant), st.sampled_from([GOOD, Outcome.OTHERWISE]), observations), max_size=10
)
infra_trials = st.lists(st.builds(trial, st.sampled_from(Variant), st.just(INFRA), observations), max_size=6)


@given(any_trials, infra_trials, st.integers(1, 4), st.randoms())
def test_infra_trials_never_change_a_verdict(
    counted: list[Trial], spoiled: list[Trial], needed: int, mix: object
) -> None:
    mixed = counted + spoiled
    mix.shuffle(mixed)  # type: ignore[attr-defined]
    assert decide(mixed, needed).verdict is decide(counted, needed).verdict


@given(infra_trials, st.integers(0, 4))
def test_the_machine_alone_never_says_anything_about_a_case(spoiled: list[Trial], needed: int) -> None:
    assert decide(spoiled, needed).verdict is Verdict.INCONCLUSIVE


@given(any_trials, st.integers(1, 4), st.sampled_from(Variant), observations)
def test_one_more_trial_that_went_otherwise_never_confirms(
    trials: list[Trial], needed: int, variant: Variant, seen: Observation
) -> None:
    assert decide([*trials, trial(variant, Outcome.OTHERWISE, seen)], needed).verdict is not Verdict.CONFIRMED


@given(any_trials, st.integers(1, 4))
def test_confirmed_needs_enough_of_both(trials: list[Trial], needed: int) -> None:
    decision = decide(trials, needed)
    enough = all(rate.k == rate.n >= needed for rate in decision.rates.values())
    assert (decision.verdict is Verdict.CONFIRMED) == enough


@given(st.integers(0, 200), st.integers(0, 200))
def test_the_interval_holds_the_rate(k: int, more: int) -> None:
    n = k + more
    low, high = wilson(k, n)
    assert 0 <= low <= (k / n if n else 0) <= high <= 1


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    # where k is n the low end is n / (n + z * z); it is symmetric in k and n - k
    [(3, 3, 0.438503, 1.0), (0, 3, 0.0, 0.561497), (5, 10, 0.236593, 0.763407), (0, 0, 0.0, 1.0)],
)
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-6)


def test_rates_of_nothing() -> None:
    assert {rate.n for rate in rates([], Terms(trials=1)).values()} == {0}


@pytest.mark.parametrize(
    ("p", "alpha", "n"),
    [
        (0.5, 0.125, 3),
        (0.1, 0.729, 3),
        (0.3, 0.2401, 4),
        (0.5, 0.05, 5),
        (0.1, 0.05, 29),
        (1.0, 0.05, 1),
        (0.001, 0.01, 4603),
    ],
)
def test_clean_trials_needed(p: float, alpha: float, n: int) -> None:
    assert clean_trials_needed(p, alpha) == n


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_clean_trials_are_as_many_as_needed_and_no_more(p: float, alpha: float) -> None:
    n = clean_trials_needed(p, alpha)
    assert (1 - p) ** n <= alpha * (1 + 1e-9)
    assert (1 - p) ** (n - 1) > alpha * (1 - 1e-9) or math.isclose(alpha, 1)


@pytest.mark.parametrize(("p", "alpha"), [(0, 0.05), (1.1, 0.05), (0.5, 0), (0.5, 1), (math.nan, 0.05)])
def test_clean_trials_of_an_impossible_rate(p: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="needs 0 < p <= 1"):
        clean_trials_needed(p, alpha)
