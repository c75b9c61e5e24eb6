"""No false verdicts. A sample of the matrix each time, all of it with `-m slow` or `nox -s mutants`."""

from collections import Counter
from pathlib import Path

import pytest

from runner.evidence import Verdict
from tests.mutants.matrix import Mutant, matrix
from tests.mutants.stage import judge_all

EVERY = 25


def sample(mutants: list[Mutant]) -> list[Mutant]:
    """One in `EVERY`, from the kinds whose trials take no seconds."""
    return [mutant for mutant in mutants if mutant.environment == "here" and "hang" not in mutant.name][::EVERY]


def wrong(mutants: list[Mutant], place: Path) -> list[str]:
    outcomes = judge_all(mutants, place)
    return [f"{it.mutant.name}: {it.verdict}, right: {it.mutant.right}; {it.told}" for it in outcomes if not it.right]


def test_a_sample_gets_the_right_verdicts(tmp_path: Path) -> None:
    chosen = sample(matrix(tmp_path / "cases"))
    assert len({mutant.right for mutant in chosen}) >= 4
    assert not wrong(chosen, tmp_path / "trials")


@pytest.mark.slow
def test_every_mutant_gets_the_right_verdict(tmp_path: Path) -> None:
    assert not wrong(matrix(tmp_path / "cases"), tmp_path / "trials")


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
