"""No false verdicts. A sample of the matrix each time, all of it with `-m slow` or `nox -s mutants`."""

from collections import Counter
from pathlib import Path

import pytest

from gpu_casebook.evidence import Verdict
from gpu_casebook.kinds import Variant
from tests.mutants import corpus
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
