from pathlib import Path

import pytest

from casebook_workbench.corpus.model import End, Finished, Lost, Run, Settings
from casebook_workbench.corpus.summary import BROKE, NOT_CONFIRMED, lines, status
from failure_signature.trials import Verdict
from gpu_casebook.errors import ExitStatus
from tests.corpus.test_journal import NOW, finished, job


def run(*ends: Finished, left: int = 0) -> Run:
    jobs = [*(each.job for each in ends), *(job(f"left-{n}") for n in range(left))]
    settings = Settings(root="/checkout", reports=str(Path("reports")))
    return Run(id="20261121-154041", started=NOW, settings=settings, jobs=jobs, finished=list(ends))


CONFIRMED = finished(job("a"))
REUSED = finished(job("b"), end=End.REUSED, reason="of yesterday")
FAILS = finished(job("c"), verdict=Verdict.WRONG_FAILURE, reason="it failed in another way")
OPEN = finished(job("d"), verdict=Verdict.INCONCLUSIVE, reason="too few trials")
SKIPPED = finished(job("e"), end=End.SKIPPED, verdict=None, reason="there is no GPU")
BROKEN = finished(job("f"), end=End.BROKE, verdict=None, reason="no lock")


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (run(CONFIRMED), 0),
        (run(REUSED), 0),
        (run(CONFIRMED, SKIPPED), 0),
        (run(CONFIRMED, FAILS), NOT_CONFIRMED),
        (run(CONFIRMED, OPEN), NOT_CONFIRMED),
        (run(CONFIRMED, FAILS, BROKEN, left=1), NOT_CONFIRMED),
        (run(CONFIRMED, BROKEN), BROKE),
        (run(BROKEN, SKIPPED), BROKE),
        (run(CONFIRMED, left=1), BROKE),
        (run(SKIPPED), ExitStatus.of(Verdict.SKIPPED)),
    ],
)
def test_exit_status(ended: Run, expected: int) -> None:
    assert status(ended) == expected


def test_the_summary_begins_with_how_many_are_confirmed_of_how_many() -> None:
    everything = run(CONFIRMED, REUSED, FAILS, OPEN, SKIPPED, BROKEN, left=2)
    assert lines(everything) == [
        "2 of 4 confirmed (1 reused, 1 skipped, 1 broke, 2 not run)",
        "  wrong-failure: c/e: it failed in another way",
        "  inconclusive: d/e: too few trials",
        "  broke: f/e: no lock",
        "  skipped: 1, there is no GPU: e/e",
        "  reused: 1: b/e",
    ]
    assert lines(run(CONFIRMED)) == ["1 of 1 confirmed"]


def test_what_broke_does_not_count_as_not_confirmed() -> None:
    assert lines(run(CONFIRMED, BROKEN))[0] == "1 of 1 confirmed (1 broke)"


def test_like_reasons_are_one_line_the_commonest_first() -> None:
    skipped = [SKIPPED.model_copy(update={"job": job(f"s-{n}")}) for n in range(9)]
    other = finished(job("t"), end=End.SKIPPED, verdict=None, reason="2 GPUs are needed")
    assert lines(run(CONFIRMED, other, *skipped))[1:] == [
        "  skipped: 9, there is no GPU: s-0/e, s-1/e, s-2/e, s-3/e, s-4/e, s-5/e and 3 more",
        "  skipped: 1, 2 GPUs are needed: t/e",
    ]


def test_why_others_ran_again() -> None:
    again = finished(job("a", because="the lock changed"))
    new = [finished(job(f"n-{n}", because="no evidence yet")) for n in range(2)]
    assert lines(run(again, *new))[1:] == [
        "  run: 2, no evidence yet: n-0/e, n-1/e",
        "  run: 1, the lock changed: a/e",
    ]


def test_lost_workers_are_told() -> None:
    lost = [Lost(worker="w1", reason="it was killed", after_s=1.0)] * 2
    assert "  lost 2 workers: a/e: it was killed" in lines(run(finished(job("a"), lost=lost)))


def test_a_thousand_that_broke_are_not_a_thousand_lines() -> None:
    broke = [BROKEN.model_copy(update={"job": job(f"x-{n:04}")}) for n in range(1000)]
    said = lines(run(*broke))
    assert len(said) == 52
    assert said[-1] == "  broke: 950 more, which the run's page lists"
    assert all(len(line) <= 302 and "\n" not in line for line in said)
