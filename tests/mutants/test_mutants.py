"""No false verdicts. A sample of the matrix each time; all of it, as in CI, where slow tests are not left out."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from tests.mutants import corpus
from tests.mutants.__main__ import row, totals
from tests.mutants.matrix import HERE, Mutant, matrix, synthetic
from tests.mutants.mutations import Mutation, Part
from tests.mutants.stage import Outcome, checked, judge_all

EVERY = 25


def sample(mutants: list[Mutant]) -> list[Mutant]:
    """One in `EVERY`, from the kinds whose trials take no seconds."""
    return [mutant for mutant in mutants if mutant.environment == HERE and "hang" not in mutant.name][::EVERY]


def wrong(mutants: list[Mutant], place: Path) -> list[str]:
    outcomes = judge_all(mutants, place)
    return [row(outcome) for outcome in outcomes if not outcome.right]


def test_a_sample_gets_the_right_verdicts(tmp_path: Path) -> None:
    chosen = sample(matrix(tmp_path / "cases"))
    assert len({mutant.right for mutant in chosen}) >= 4
    assert not wrong(chosen, tmp_path / "trials")


@pytest.mark.slow
def test_every_mutant_gets_the_right_verdict(tmp_path: Path) -> None:
    assert not wrong(matrix(tmp_path / "cases"), tmp_path / "trials")


def test_one_of_each_part_and_way_to_be_wrong(tmp_path: Path) -> None:
    names = {
        "exception: repro has it in one rank, before another's",
        "figures: the bounds overlap",
        "package: a lock for Windows, though a package is required",
        "package: its environment has an edited module",
        "exception: a run leaves behind what mends the next ones",
        "a pair: fixed takes its result as the reference",
        "a pair: repro gets its failure from code around the kernel",
    }
    chosen = [mutant for mutant in synthetic(tmp_path / "cases") if mutant.name in names]
    assert {mutant.mutation.part for mutant in chosen} == set(Part)
    assert len(chosen) == len(names)
    outcomes = list(judge_all(chosen, tmp_path / "trials"))
    assert [row(outcome) for outcome in outcomes if not outcome.right] == []
    assert totals(outcomes)[1:] == [
        "false confirmed by the runner's fault: 0",
        "refused by rule: 2",
        "left to the reader: 2 (1 with a word of check, 1 that no rule can see)",
    ]


def test_what_comes_out_otherwise_is_wrong_and_what_is_confirmed_by_fault_is_counted() -> None:
    def outcome(mutation: Mutation, **came: Any) -> Outcome:
        mutant = Mutant(name="", directory=Path(), environment=HERE, mutation=mutation)
        return Outcome(mutant=mutant, **({"verdict": Verdict.CONFIRMED} | came))

    right = Verdict.CONFIRMED
    open_ = Mutation(name="", right=Verdict.INCONCLUSIVE)
    drifted = Mutation(name="", right=right, exact=False)
    told = Mutation(name="", right=right, said="warning: x")
    untold = Mutation(name="", right=right, why_not="Nobody knows.")
    refused = Mutation(name="", right=None, refused=True, told="too few")
    ends = {
        outcome(open_): (False, True),
        outcome(drifted): (True, False),
        outcome(drifted, exact=True): (False, True),
        outcome(told): (False, False),
        outcome(told, said=("warning: x y",)): (True, False),
        outcome(untold): (True, False),
        outcome(untold, said=("warning: x y",)): (False, False),
        outcome(refused): (False, True),
        outcome(refused, verdict=None, told="too few"): (False, False),
        outcome(refused, verdict=None, refused=True): (False, False),
        outcome(refused, verdict=None, refused=True, told="1 is too few"): (True, False),
    }
    assert [(each.right, each.false) for each in ends] == [*ends.values()]


def test_what_only_a_reader_can_see_has_a_word_of_check_or_a_sentence(tmp_path: Path) -> None:
    left = [mutant.mutation for mutant in synthetic(tmp_path) if mutant.mutation.for_a_reader]
    assert len(left) >= 21
    assert all(bool(each.said) != bool(each.why_not) and each.right is Verdict.CONFIRMED for each in left)
    assert all(each.why_not.endswith(".") for each in left if each.why_not)


def test_what_check_says_of_what_only_a_reader_can_see(tmp_path: Path) -> None:
    for mutant in synthetic(tmp_path):
        if mutant.mutation.for_a_reader:
            said = checked(mutant.directory.parents[1], mutant.directory.name)
            assert Outcome(mutant=mutant, said=said).said_right, (mutant.name, said)


def test_the_matrix_is_large_and_holds_every_verdict(tmp_path: Path) -> None:
    mutants = matrix(tmp_path)
    count = Counter(mutant.right for mutant in mutants)
    assert len(mutants) >= 200
    assert set(count) == {*Verdict, None} - {Verdict.SKIPPED}
    assert all(times >= 10 for times in count.values()), count


def test_each_kind_and_case_is_there_as_it_is_and_no_name_twice(tmp_path: Path) -> None:
    mutants = matrix(tmp_path)
    subjects = {mutant.name.rpartition(": ")[0] for mutant in mutants}
    assert {mutant.name.rpartition(": ")[0] for mutant in mutants if mutant.unmutated} == subjects
    assert all(mutant.right is Verdict.CONFIRMED for mutant in mutants if mutant.unmutated)
    assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_what_a_release_case_is_swapped_for_includes_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "ALL", True)
    taken = {
        "variants swapped": ("fixed", "repro"),
        "repro is fixed": ("fixed", "fixed"),
        "as it is": ("repro", "fixed"),
    }
    looked = 0
    for mutant in matrix(tmp_path):
        own = [mutant.directory / "locks" / f"{mutant.environment}.{variant}.txt" for variant in Variant]
        change = mutant.name.rpartition(": ")[2]
        if change not in taken or not own[0].exists():
            continue
        source = corpus.ROOT / "cases" / mutant.directory.name / "locks"
        right = [(source / f"{mutant.environment}.{variant}.txt").read_text() for variant in taken[change]]
        assert [path.read_text() for path in own] == right, mutant.name
        looked += 1
    assert looked >= 3 * len(taken)
