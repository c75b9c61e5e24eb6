from collections.abc import Callable

import pytest

from gpu_casebook.evidence import Trial, Variant, Verdict
from gpu_casebook.judging.rates import Terms, clean_demanded, rates, reproduced
from gpu_casebook.judging.schedule import most, slots_used, wants
from gpu_casebook.judging.verdict import decide, repro_decides
from gpu_casebook.manifest.bounds import Bound
from tests.synthetic import trials

THREE = Terms(trials=3)
A_THIRD = Bound.parse(">= 0.3")


def run(repro: str, fixed: str, asked: Terms) -> tuple[str, str]:
    """Those of these trials that are run."""
    texts = {Variant.REPRO: repro, Variant.FIXED: fixed}
    done = {Variant.REPRO: "", Variant.FIXED: ""}
    for variant in Variant:
        while wants(variant, trials(*done.values()), asked):
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
    assert run(repro, fixed, THREE) == ran


def test_as_many_trials_as_a_person_asks_for() -> None:
    asked = Terms(trials=4, to_the_last=True)
    assert run("GPGG", "PGGG", asked) == ("GPGG", "PGGG")
    assert most(Variant.FIXED, trials("PPPP"), asked) == 4


def test_repetitions_of_a_spoiled_trial_are_one_trial() -> None:
    spoiled = trials("I") * 3 + trials("IG")[1:]
    assert slots_used(Variant.REPRO, spoiled) == 2


Said = Callable[[list[Trial]], object]
"""What the test compares: the verdict, or what repro alone has to say."""


def explore(said: Said, asked: Terms, letters: str, length: int, *, after: str = "") -> None:
    """Walk through every sequence of outcomes of repro, or of fixed `after` a repro, to `length` or stopped early.

    Where it stops, every continuation says the same; where it goes on, two continuations differ, or the number of
    trials that fixed would need is still above what repro has had.
    """
    variant = Variant.FIXED if after else Variant.REPRO

    def of(text: str) -> list[Trial]:
        return trials(after, text) if after else trials(text)

    def walk(text: str, *, stopped: bool) -> set[object]:
        stops = len(text) == length or not wants(variant, of(text), asked)
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
    repro = rates(found, asked)[Variant.REPRO]
    if asked.differs and not repro.k and len(found) == length - 1:
        return True  # a single output has none to differ from, but that much the schedule does not look ahead
    return reproduced(repro.k, repro.n, asked) and clean_demanded(repro, asked) > repro.n


def verdict(asked: Terms) -> Said:
    return lambda found: decide(found, asked).verdict


def repro_alone(asked: Terms) -> Said:
    """The verdict that is repro's own, or None where fixed has its say; the limit on its trials is left out."""

    def said(found: list[Trial]) -> Verdict | None:
        finding = repro_decides(found, asked)
        return finding.verdict if finding else None

    return said


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_stopping_early_never_changes_what_repro_says(length: int) -> None:
    asked = Terms(trials=length)
    explore(repro_alone(asked), asked, "GPWI", length)


@pytest.mark.parametrize("repro", ["GGG", "GPG", "PPP", "PWP", "IGG"])
def test_stopping_early_never_changes_the_verdict(repro: str) -> None:
    if repro_decides(trials(repro), THREE):
        assert not wants(Variant.FIXED, trials(repro), THREE)
        assert decide(trials(repro), THREE).verdict is decide(trials(repro, "PWG"), THREE).verdict
    else:
        explore(verdict(THREE), THREE, "GPWI", 3, after=repro)


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
    explore(verdict(asked), asked, letters, most(Variant.FIXED, trials(repro), asked), after=repro)


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
    assert len(run(repro, "G" * 200, Terms(trials=40, rate=A_THIRD))[0]) == ran


def test_fixed_gets_as_many_trials_as_the_measured_rate_asks_for() -> None:
    asked = Terms(trials=40, rate=A_THIRD)
    repro, fixed = run("GPPGP" * 8, "G" * 200, asked)
    assert (repro.count("G"), len(repro), len(fixed)) == (
        8,
        19,
        18,
    )  # 8 of 19: above 0.231; 0.769 ** 18 < 0.01
    assert decide(trials(repro, fixed), asked).verdict is Verdict.CONFIRMED
    assert decide(trials(repro, fixed[1:]), asked).verdict is Verdict.INCONCLUSIVE


def test_fixed_is_not_run_where_it_would_take_too_many_trials() -> None:
    asked = Terms(trials=40, rate=Bound.parse(">= 0.1"), clean_trials=100)
    assert run("P" * 39 + "G", "", asked) == ("P" * 39 + "G", "")


def test_outputs_that_always_differ_take_few_trials() -> None:
    asked = Terms(trials=20, differs=("out",), same=("out",))
    repro, fixed = run("abcdefghijklmnopqrst", "a" * 200, asked)
    assert (len(repro), len(fixed)) == (8, 8)
