import math
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failure_signature.bounds import Bound
from failure_signature.expectation import Growth
from failure_signature.judging.decision import Decision, Tally, Terms, decide
from failure_signature.kinds import Variant
from failure_signature.statistics import clean_trials_needed, wilson
from failure_signature.trials import Demand, Observation, Outcome, Trial, Verdict
from tests import synthetic

GOOD, INFRA = Outcome.AS_EXPECTED, Outcome.INFRA
RAN = Observation(exit_status=0)
FAILED = Observation(exit_status=1, exception="ModuleNotFoundError", message="No module named 'triton'")
BROKEN = Observation(
    exit_status=1, exception="triton.compiler.errors.CompilationError", message="at 1:1:\nx\nNo broadcast"
)


def decided(trials: Sequence[Trial], needed: int) -> Decision:
    """Of a case that declares no rate."""
    return decide(trials, Terms(trials=needed))


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


def test_where_a_compiler_ends_with_a_caret_the_headline_has_the_cause() -> None:
    """As Triton 3 does; 2 says what is wrong below the source."""
    pointed = BROKEN.model_copy(
        update={
            "message": "at 3:8:\n    x = a + b\n        ^",
            "causes": ["KeyError: 1", "ValueError: Cannot broadcast"],
        }
    )
    said = decided(repro(GOOD, GOOD, GOOD, observation=pointed) + fixed(GOOD, GOOD, GOOD), 3).reasons[0]
    assert "CompilationError, caused by ValueError: Cannot broadcast; the fix holds" in said


def test_confirmed_when_all_of_both_are_as_expected() -> None:
    decision = decided(repro(GOOD, GOOD, GOOD) + fixed(GOOD, GOOD, GOOD), 3)
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.reasons == (
        "Reproduces in 3 of 3 runs: triton.compiler.errors.CompilationError: No broadcast; the fix holds in 3 of 3.",
    )
    assert (decision.rates[Variant.REPRO].k, decision.rates[Variant.REPRO].n) == (3, 3)


def test_not_reproduced_when_repro_ran_to_its_end() -> None:
    ran = repro(Outcome.OTHERWISE, Outcome.OTHERWISE, observation=RAN)
    decision = decided(ran + fixed(GOOD, GOOD), 2)
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
    assert decided(trials + fixed(GOOD, GOOD), 2).verdict is Verdict.WRONG_FAILURE


def test_wrong_failure_says_what_was_seen() -> None:
    decision = decided(repro(Outcome.OTHERWISE, observation=FAILED) + fixed(GOOD), 1)
    expected = "Fails in another way than declared in 1 of 1 runs: ModuleNotFoundError: No module named 'triton'."
    assert decision.reasons[0] == expected


def test_fix_fails_when_any_fixed_trial_is_otherwise() -> None:
    decision = decided(repro(GOOD, GOOD) + fixed(GOOD, Outcome.OTHERWISE), 2)
    assert decision.verdict is Verdict.FIX_FAILS
    assert decision.reasons[0].endswith("the fix holds in 1 of 2 only.")


def test_inconclusive_when_repro_does_not_fail_every_time() -> None:
    trials = repro(GOOD) + repro(Outcome.OTHERWISE, Outcome.OTHERWISE, observation=RAN)
    decision = decided(trials + fixed(GOOD, GOOD, GOOD), 3)
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
    decision = decided(trials, 2)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reasons[0].startswith(f"Too few runs count: {who}, where 2 are needed")


def test_no_trials_confirm_nothing_even_where_none_is_needed() -> None:
    assert decided([], 0).verdict is Verdict.INCONCLUSIVE


def test_the_machines_fault_is_told_apart() -> None:
    decision = decided(repro(GOOD, INFRA, INFRA) + fixed(GOOD), 1)
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.reasons[1] == "repro: not counted, the machine was to blame: the disk is full (2 times)"
    assert decision.rates[Variant.REPRO].infra == 2


def test_several_endings_are_counted() -> None:
    trials = repro(GOOD, GOOD) + repro(GOOD, observation=Observation(signal="SIGSEGV"))
    expected = "CompilationError: No broadcast (2 of 3, the others in 1 other ways)"
    assert expected in decided(trials + fixed(GOOD), 1).reasons[0]


def test_a_failure_without_a_crash_is_told_by_its_figures() -> None:
    figures = [{"fwd": 1.25e-7, "dq": 0.25, "x": 1}, {"fwd": 1.25e-7, "dq": 0.228, "x": math.nan}]
    seen = [Observation(exit_status=0, figures=each) for each in figures]
    trials = [*repro(GOOD, observation=seen[0]), *repro(GOOD, observation=seen[1]), *fixed(GOOD, GOOD)]
    expected = "Reproduces in 2 of 2 runs: ran to its end, fwd=1.25e-07, dq=0.228 to 0.25, 1 more figure; the fix"
    assert decided(trials, 2).reasons[0].startswith(expected)


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
    assert decided(mixed, needed).verdict is decided(counted, needed).verdict


@given(infra_trials, st.integers(0, 4))
def test_the_machine_alone_never_says_anything_about_a_case(spoiled: list[Trial], needed: int) -> None:
    assert decided(spoiled, needed).verdict is Verdict.INCONCLUSIVE


@given(any_trials, st.integers(1, 4), st.sampled_from(Variant), observations)
def test_one_more_trial_that_went_otherwise_never_confirms(
    trials: list[Trial], needed: int, variant: Variant, seen: Observation
) -> None:
    assert decided([*trials, trial(variant, Outcome.OTHERWISE, seen)], needed).verdict is not Verdict.CONFIRMED


@given(any_trials, st.integers(1, 4))
def test_confirmed_needs_enough_of_both(trials: list[Trial], needed: int) -> None:
    decision = decided(trials, needed)
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


RACE = Terms(trials=40, rate=Bound.parse(">= 0.3"))
MIXED = Terms(trials=10, differs=("out",), same=("out",), alpha=0.2)


def measured(repro: str, fixed: str = "", asked: Terms = RACE) -> Decision:
    return decide(synthetic.trials(repro, fixed), asked)


def test_a_race_is_confirmed_with_its_rate_and_what_it_asks_of_the_fix() -> None:
    decision = measured("GPPGP" * 4, "G" * 19)
    asked_of_fixed = (
        "asked of fixed: 19 clean runs; at a rate of 0.2188, the lower end of repro's 95 % interval, "
        "so many come about by chance with probability 0.0092 (alpha 0.01)"
    )
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.reasons == (
        "Reproduces in 8 of 20 runs (95 % interval 22 to 61 %): RuntimeError: off by two; the fix holds in 19 of 19.",
        "asked of repro: a rate >= 0.3 in at most 40 runs",
        asked_of_fixed,
        "repro: exit status: as in the test (12 of 20)",
    )
    assert decision.demand == Demand(rate=">= 0.3", alpha=0.01, most=40, clean=19)
    assert (decision.rates[Variant.REPRO].k, decision.rates[Variant.REPRO].n) == (8, 20)


@pytest.mark.parametrize("fixed", ["P", "W", "G" * 18 + "P", "I" + "P", "G" * 30 + "P"])
def test_one_failure_of_fixed_is_one_too_many(fixed: str) -> None:
    assert measured("GPPGP" * 4, fixed).verdict is Verdict.FIX_FAILS


@pytest.mark.parametrize(
    ("repro", "fixed", "kind", "told"),
    [
        ("GPPGP" * 4, "G" * 18, Verdict.INCONCLUSIVE, "Too few runs count: 18 of fixed, where 19 are needed."),
        ("GPPGP" * 4, "G" * 18 + "I", Verdict.INCONCLUSIVE, "18 of fixed, where 19 are needed; the machine spoiled 1."),
        ("P" * 38 + "GG", "", Verdict.INCONCLUSIVE, "2 of 40 runs only (95 % interval 1 to 17 %): rarer than the decl"),
        ("P" * 40, "", Verdict.NOT_REPRODUCED, "Does not reproduce: repro ran to its end in 40 of 40 runs."),
        ("P" * 39 + "W", "", Verdict.WRONG_FAILURE, "Fails in another way than declared in 1 of 40 runs: ModuleNotFou"),
        ("P" * 8, "", Verdict.INCONCLUSIVE, "Too few runs count: 8 of repro, where 9 are needed."),
        ("P" * 8 + "I", "", Verdict.INCONCLUSIVE, "8 of repro, where 9 are needed; the machine spoiled 1."),
        ("W", "", Verdict.INCONCLUSIVE, "Too few runs count: 1 of repro, where 9 are needed."),
        ("P" * 9, "", Verdict.NOT_REPRODUCED, "Does not reproduce"),
    ],
)
def test_the_other_verdicts_on_a_race(repro: str, fixed: str, kind: Verdict, told: str) -> None:
    decision = measured(repro, fixed)
    assert decision.verdict is kind
    assert told in decision.reasons[0]


def test_other_failures_do_not_spoil_a_race_that_shows_often_enough() -> None:
    assert measured("GPWGP" * 4, "G" * 19).verdict is Verdict.CONFIRMED


def test_a_fix_that_would_need_too_many_runs() -> None:
    rare = Terms(trials=40, rate=Bound.parse(">= 0.1"), clean_trials=100)
    decision = measured("P" * 39 + "G", "G" * 100, rare)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reasons[0] == (
        "Reproduces in 1 of 40 runs (95 % interval 0 to 13 %), so seldom that the fix would need 1038 clean runs; "
        "the case allows 100."
    )


@pytest.mark.parametrize(
    ("repro", "fixed", "kind", "told"),
    [
        (
            "abcdef",
            "aaaaaa",
            Verdict.CONFIRMED,
            "Reproduces in 6 runs: ran to its end, out has 6 values; the fix holds",
        ),
        ("abcdef", "aaaaab", Verdict.FIX_FAILS, "out has 6 values; out still has 2 values in 6 runs."),
        ("abcdef", "aaaaa", Verdict.INCONCLUSIVE, "Too few runs count: 5 of fixed, where 6 are needed."),
        ("abcdef", "aaaaaP", Verdict.FIX_FAILS, "the fix holds in 5 of 6 only."),
        ("aaaaaaaaaa", "", Verdict.NOT_REPRODUCED, "Does not reproduce: out was the same in 10 of 10 runs."),
        ("aaaaa", "", Verdict.INCONCLUSIVE, "Too few runs count: 5 of repro, where 10 are needed."),
        ("aaaaaaaaaW", "", Verdict.WRONG_FAILURE, "in another way than declared in 1 of 10 runs: ModuleNotFoundError"),
        ("PPPPPPPPPP", "", Verdict.NOT_REPRODUCED, "repro ran to its end in 10 of 10 runs."),
    ],
)
def test_outputs_that_differ(repro: str, fixed: str, kind: Verdict, told: str) -> None:
    decision = measured(repro, fixed, MIXED)
    assert decision.verdict is kind
    assert told in decision.reasons[0]


def test_fixed_gets_no_fewer_trials_than_repro_needed() -> None:
    assert MIXED.clean_demanded(Tally(synthetic.trials("abcdef" * 5), MIXED).repro) == 30


def test_of_several_outputs_the_one_that_differs_least_counts() -> None:
    both = Terms(trials=10, differs=("out", "x"), same=("out", "x"))
    seen = [Observation(exit_status=0, digests={"out": f"a:0000000{at}", "x": "a:00000000"}) for at in range(4)]
    trials = [trial for each in seen for trial in repro(GOOD, observation=each)]
    assert Tally(trials, both).repro.k == 0


def test_equal_outputs_of_one_run_show_nothing() -> None:
    """Also of a case whose repro fails in another way than by outputs that differ."""
    once = Terms(trials=1, same=("out",))
    assert measured("G", "a", once).verdict is Verdict.INCONCLUSIVE
    assert measured("G", "aa", once).verdict is Verdict.CONFIRMED
    assert measured("G", "ab", once).verdict is Verdict.FIX_FAILS


def test_the_headline_tells_the_figures_that_tell_repro_from_fixed() -> None:
    bounds = {name: Bound.parse("> 0.2, < 0.3") for name in "abc"}
    seen = Observation(exit_status=0, figures={"other": 1.0, "a": 0.25061, "b": 0.25, "c": 0.21})
    trials = [*repro(GOOD, observation=seen), *fixed(GOOD)]
    told = decide(trials, Terms(trials=1, telling=bounds)).reasons[0]
    figures = "a=0.2506 (> 0.2, < 0.3), b=0.25 (> 0.2, < 0.3), 1 more figure"
    assert told == f"Reproduces in 1 of 1 runs: ran to its end, {figures}; the fix holds in 1 of 1."


def test_the_headline_tells_growth() -> None:
    leak = Growth(series="device_bytes", per_step=Bound.parse("> 1e6"))
    trials = [trial.model_copy(update={"growth": 2.5e6}) for trial in repro(GOOD, observation=RAN)]
    told = decide(trials + fixed(GOOD), Terms(trials=1, growth=leak)).reasons[0]
    assert "ran to its end, device_bytes grows by 2500000 per step (> 1e6); the fix" in told


def test_rates_of_nothing() -> None:
    assert {rate.n for rate in Tally([], Terms(trials=1)).rates.values()} == {0}


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


# How many trials

THREE = Terms(trials=3)
A_THIRD = Bound.parse(">= 0.3")


def ran_of(repro: str, fixed: str, asked: Terms) -> tuple[str, str]:
    """Those of these trials that are run."""
    texts = {Variant.REPRO: repro, Variant.FIXED: fixed}
    done = {Variant.REPRO: "", Variant.FIXED: ""}
    for variant in Variant:
        while Tally(synthetic.trials(*done.values()), asked).wants(variant):
            done[variant] += texts[variant][len(done[variant])]
    return done[Variant.REPRO], done[Variant.FIXED]


@pytest.mark.parametrize(
    ("repro", "fixed", "ran"),
    [
        ("GGG", "GGG", ("GGG", "GGG")),
        ("PPP", "GGG", ("PPP", "")),  # the second could still fail in another way
        ("PWP", "GGG", ("PWP", "")),
        ("GPG", "GGG", ("GP", "")),  # not every time: nothing can mend that
        ("WGG", "GGG", ("WG", "")),
        ("IGG", "GGG", ("I", "")),  # one too few, whatever comes
        ("GGG", "GPG", ("GGG", "GP")),
        ("GGG", "IGP", ("GGG", "IGP")),  # too few to confirm, but it may yet fail
    ],
)
def test_trials_of_a_case_that_must_fail_every_time(repro: str, fixed: str, ran: tuple[str, str]) -> None:
    assert ran_of(repro, fixed, THREE) == ran


def test_as_many_trials_as_a_person_asks_for() -> None:
    asked = Terms(trials=4, to_the_last=True)
    assert ran_of("GPGG", "PGGG", asked) == ("GPGG", "PGGG")
    assert Tally(synthetic.trials("PPPP"), asked).most(Variant.FIXED) == 4


def test_repetitions_of_a_spoiled_trial_are_one_trial() -> None:
    spoiled = synthetic.trials("I") * 3 + synthetic.trials("IG")[1:]
    assert Tally(spoiled, THREE).used(Variant.REPRO) == 2


def order(repro: str, fixed: str, asked: Terms) -> str:
    """The variants in the order of their trials: R and F."""
    texts, done, said = {Variant.REPRO: repro, Variant.FIXED: fixed}, {Variant.REPRO: "", Variant.FIXED: ""}, ""
    while variant := Tally(synthetic.trials(*done.values()), asked).next:
        done[variant] += texts[variant][len(done[variant])]
        said += variant[0].upper()
    return said


@pytest.mark.parametrize(
    ("repro", "fixed", "asked", "said"),
    [
        ("GGG", "GGGG", Terms(trials=3, clean=4), "RFRFRFF"),
        ("PPP", "GGGG", Terms(trials=3, clean=4), "RRR"),
        ("GPG", "GGGG", Terms(trials=3, clean=4), "RFR"),
        ("GGG", "PGGG", Terms(trials=3, clean=4), "RFRR"),
        ("GGGG", "PPPP", Terms(trials=4, to_the_last=True), "RFRFRFRF"),
        ("G" * 40, "G" * 40, Terms(trials=40, rate=A_THIRD), "RFRFRFRFRFRR"),
        ("PPGPGG" * 7, "G" * 40, Terms(trials=40, rate=A_THIRD), "RRRFFF" + "RF" * 13 + "R"),
        ("P" * 40, "G" * 40, Terms(trials=40, rate=A_THIRD), "R" * 40),
    ],
)
def test_the_variants_take_turns(repro: str, fixed: str, asked: Terms, said: str) -> None:
    """So that what one leaves behind, such as a file, meets the other too."""
    assert order(repro, fixed, asked) == said


@pytest.mark.parametrize("asked", [Terms(trials=3, clean=4), Terms(trials=4, rate=A_THIRD, alpha=0.2)])
def test_in_turns_the_verdict_is_the_same_as_one_after_the_other(asked: Terms) -> None:
    for repro in map("".join, product("GPW", repeat=asked.trials)):
        for at in (0, 1, 2, 3, None):
            fixed = "G" * 60 if at is None else "G" * at + "P" + "G" * 60
            done = {Variant.REPRO: "", Variant.FIXED: ""}
            while variant := Tally(synthetic.trials(*done.values()), asked).next:
                done[variant] += {Variant.REPRO: repro, Variant.FIXED: fixed}[variant][len(done[variant])]
            one_by_one = ran_of(repro, fixed, asked)
            verdicts = {decide(synthetic.trials(*texts), asked).verdict for texts in (done.values(), one_by_one)}
            surplus = asked.rate and verdicts == {Verdict.CONFIRMED, Verdict.FIX_FAILS}
            assert len(verdicts) == 1 or surplus, (repro, at)


SHORT = Terms(trials=1, least=3, to_the_last=True)


def test_fewer_trials_than_the_case_asks_for_confirm_nothing() -> None:
    decision = measured("G", "G", SHORT)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reasons[0] == (
        "Reproduces in 1 of 1 runs: RuntimeError: off by two; the fix holds in 1 of 1, but that is too few to "
        "confirm it: the case asks for 3 of repro and 4 of fixed."
    )
    assert measured("G", "P", SHORT).verdict is Verdict.FIX_FAILS
    assert measured("P", "G", SHORT).verdict is Verdict.NOT_REPRODUCED


def test_fewer_trials_of_a_race_confirm_what_more_of_them_would_not_go_on_from() -> None:
    short = Terms(trials=10, least=40, rate=A_THIRD, to_the_last=True)
    assert measured("G" * 7, "G" * 6, short).verdict is Verdict.CONFIRMED
    decision = measured("GPPGPPGPPG", "G" * 60, short)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "the case asks for up to 40 of repro" in decision.reasons[0]


def blamed(variant: Variant) -> Trial:
    """Failed otherwise, and its output says that the disk is full."""
    return trial(variant, INFRA, FAILED).model_copy(update={"mismatches": ["exit status: expected 0, saw 1"]})


@pytest.mark.parametrize(
    ("repros", "fixeds", "told"),
    [
        (0, 1, "1 more run of fixed failed with what may be its own fault or the machine's (the disk is full)."),
        (0, 2, "2 more runs of fixed failed"),
        (2, 2, "2 more runs of fixed failed"),
        (2, 0, "2 more runs of repro failed"),
        (1, 0, None),
        (1, 1, None),
    ],
)
def test_a_machine_does_not_choose_a_variant(repros: int, fixeds: int, told: str | None) -> None:
    spoiled = [blamed(Variant.REPRO)] * repros + [blamed(Variant.FIXED)] * fixeds
    decision = decided([*repro(GOOD, GOOD, GOOD), *fixed(GOOD, GOOD, GOOD), *spoiled], 3)
    assert decision.verdict is (Verdict.INCONCLUSIVE if told else Verdict.CONFIRMED)
    assert told is None or f"; the fix holds in 3 of 3, but {told}" in decision.reasons[0]


Said = Callable[[list[Trial]], object]
"""What the test compares: the verdict, or what repro alone has to say."""


def explore(said: Said, asked: Terms, letters: str, length: int, *, after: str = "") -> None:
    """Walk through every sequence of outcomes of repro, or of fixed `after` a repro, to `length` or stopped early.

    Where it stops, every continuation says the same; where it goes on, two continuations differ, or the number of
    trials that fixed would need is still above what repro has had.
    """
    variant = Variant.FIXED if after else Variant.REPRO

    def of(text: str) -> list[Trial]:
        return synthetic.trials(after, text) if after else synthetic.trials(text)

    def walk(text: str, *, stopped: bool) -> set[object]:
        stops = len(text) == length or not Tally(of(text), asked).wants(variant)
        ends = (
            {said(of(text))}
            if len(text) == length
            else set[object]().union(*(walk(text + letter, stopped=stopped or stops) for letter in letters))
        )
        if stops and not stopped:
            assert ends == {said(of(text))}, (after, text)
        elif not stops and not stopped:
            assert len(ends) > 1 or _worth_more(of(text), length, asked), (after, text)
        return ends

    walk("", stopped=False)


def _worth_more(found: list[Trial], length: int, asked: Terms) -> bool:
    repro = Tally(found, asked).repro
    if asked.differs and not repro.k and len(found) == length - 1:
        return True  # a single output has none to differ from, but that much the schedule does not look ahead
    return asked.reproduced(repro.k, repro.n) and asked.clean_demanded(repro) > repro.n


def verdict_of(asked: Terms) -> Said:
    return lambda found: decide(found, asked).verdict


def repro_alone(asked: Terms) -> Said:
    """The verdict that is repro's own, or None where fixed has its say; the limit on its trials is left out."""

    def said(found: list[Trial]) -> Verdict | None:
        ruling = Tally(found, asked).by_repro
        return ruling.verdict if ruling else None

    return said


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_stopping_early_never_changes_what_repro_says(length: int) -> None:
    asked = Terms(trials=length)
    explore(repro_alone(asked), asked, "GPWI", length)


@pytest.mark.parametrize("repro", ["GGG", "GPG", "PPP", "PWP", "IGG"])
def test_stopping_early_never_changes_the_verdict(repro: str) -> None:
    if Tally(synthetic.trials(repro), THREE).by_repro:
        assert not Tally(synthetic.trials(repro), THREE).wants(Variant.FIXED)
        assert decide(synthetic.trials(repro), THREE).verdict is decide(synthetic.trials(repro, "PWG"), THREE).verdict
    else:
        explore(verdict_of(THREE), THREE, "GPWI", 3, after=repro)


@pytest.mark.parametrize("least", [">= 0.3", ">= 0.6", ">= 0.95", ">= 1"])
def test_stopping_early_never_changes_whether_the_rate_is_reached(least: str) -> None:
    asked = Terms(trials=8, rate=Bound.parse(least), clean_trials=10_000)
    explore(repro_alone(asked), asked, "GPW", 8)


def test_nor_do_trials_that_the_machine_spoiled() -> None:
    asked = Terms(trials=6, rate=Bound.parse(">= 0.5"), clean_trials=10_000)
    explore(repro_alone(asked), asked, "GPWI", 6)


def test_stopping_early_never_changes_whether_outputs_differ() -> None:
    asked = Terms(trials=6, differs=("out",), same=("out",), clean_trials=10_000)
    explore(repro_alone(asked), asked, "abcW", 6)


@pytest.mark.parametrize(
    ("repro", "letters", "asked"),
    [
        ("GGGG", "GPI", Terms(trials=4, rate=A_THIRD, alpha=0.2)),
        ("abcd", "abP", Terms(trials=4, alpha=0.2, differs=("out",), same=("out",))),
    ],
)
def test_stopping_early_never_changes_the_verdict_on_a_measured_rate(repro: str, letters: str, asked: Terms) -> None:
    explore(verdict_of(asked), asked, letters, Tally(synthetic.trials(repro), asked).most(Variant.FIXED), after=repro)


@pytest.mark.parametrize(
    ("repro", "ran"),
    [
        ("G" * 40, 7),  # 7 of 40 would still not be significantly below 0.3
        ("GGP" * 14, 10),
        ("GPP" * 14, 22),
        ("P" * 33 + "G" * 7, 40),
        ("G" + "P" * 39, 35),  # with five to come, no more than 6 of 40: rarer than 0.3
        ("P" * 40, 40),  # not once: any of them could still be another failure
    ],
)
def test_a_rate_is_measured_until_it_is_sure_and_sharp_enough(repro: str, ran: int) -> None:
    assert len(ran_of(repro, "G" * 200, Terms(trials=40, rate=A_THIRD))[0]) == ran


def test_fixed_gets_as_many_trials_as_the_measured_rate_asks_for() -> None:
    asked = Terms(trials=40, rate=A_THIRD)
    repro, fixed = ran_of("GPPGP" * 8, "G" * 200, asked)
    assert (repro.count("G"), len(repro), len(fixed)) == (
        8,
        19,
        18,
    )  # 8 of 19: above 0.231; 0.769 ** 18 < 0.01
    assert decide(synthetic.trials(repro, fixed), asked).verdict is Verdict.CONFIRMED
    assert decide(synthetic.trials(repro, fixed[1:]), asked).verdict is Verdict.INCONCLUSIVE


def test_fixed_is_not_run_where_it_would_take_too_many_trials() -> None:
    asked = Terms(trials=40, rate=Bound.parse(">= 0.1"), clean_trials=100)
    assert ran_of("P" * 39 + "G", "", asked) == ("P" * 39 + "G", "")


def test_outputs_that_always_differ_take_few_trials() -> None:
    asked = Terms(trials=20, differs=("out",), same=("out",))
    repro, fixed = ran_of("abcdefghijklmnopqrst", "a" * 200, asked)
    assert (len(repro), len(fixed)) == (8, 8)
