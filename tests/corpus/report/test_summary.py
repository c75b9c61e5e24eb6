from datetime import timedelta
from typing import Any

import pytest

from casebook_workbench.corpus.model import End, Finished
from casebook_workbench.corpus.report.model import JobCounts, RunSummary, Standing
from casebook_workbench.corpus.report.summary import standing, summarise
from failure_signature.trials import Verdict
from tests.corpus.report.example import PAIR, RWKV, START, TODAY, YESTERDAY, broke, finished, job, run, skipped


def test_confirmed_of_how_many_and_the_rest_apart() -> None:
    assert summarise(TODAY).tally == JobCounts(
        jobs=7,
        judged=5,
        confirmed=3,
        reused=1,
        broke=1,
        skipped=1,
        verdicts={Verdict.CONFIRMED: 3, Verdict.NOT_REPRODUCED: 1, Verdict.WRONG_FAILURE: 1},
    )


def test_a_run_that_was_killed_says_what_is_left() -> None:
    summary = summarise(run([finished(RWKV)], left=[PAIR]))
    assert (summary.tally.jobs, summary.tally.judged, summary.tally.left) == (2, 1, 1)
    assert [line.name for line in summary.of(Standing.LEFT)] == ["pair-hang/current"]
    assert summary.ended is None


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (finished(RWKV), Standing.CONFIRMED),
        (finished(RWKV, end=End.REUSED), Standing.CONFIRMED),
        (finished(RWKV, Verdict.FIX_FAILS), Standing.FAILING),
        (finished(RWKV, Verdict.INCONCLUSIVE), Standing.FAILING),
        (finished(RWKV, Verdict.SKIPPED), Standing.SKIPPED),
        (skipped(RWKV), Standing.SKIPPED),
        (broke(RWKV), Standing.BROKE),
        (broke(RWKV, verdict=Verdict.CONFIRMED), Standing.BROKE),
        (finished(RWKV).model_copy(update={"verdict": None}), Standing.BROKE),
    ],
)
def test_how_each_end_counts(done: Finished, expected: Standing) -> None:
    assert standing(done) is expected


def test_per_device_and_per_environment() -> None:
    summary = summarise(TODAY)
    assert [(each.name, each.confirmed, each.judged, each.broke, each.skipped) for each in summary.by_device] == [
        ("CPU", 1, 1, 0, 0),
        ("NVIDIA H200", 2, 4, 0, 0),
        ("none", 0, 0, 1, 1),
    ]
    assert [(each.name, each.jobs) for each in summary.by_environment] == [("current", 6), ("front-end", 1)]


def test_compared_with_the_last_run_before() -> None:
    assert summarise(TODAY, [YESTERDAY]).compared_with == YESTERDAY.id
    assert summarise(YESTERDAY).compared_with is None


def test_what_asks_for_attention_comes_first() -> None:
    assert [line.name for line in summarise(TODAY).lines[:3]] == [
        "overread/current",
        "rwkv6-backward/current",
        "unpad/current",
    ]


def test_utilisation_counts_a_worker_once_however_many_jobs_it_has() -> None:
    minute: dict[str, Any] = {"duration_s": 60.0}
    done = [
        finished(job("a"), worker="one", **minute),
        finished(job("b"), worker="one", **minute),
        finished(job("c", gpus=2), worker="two", started=START + timedelta(seconds=60), **minute),
        finished(job("d"), end=End.REUSED, worker="two", **minute),
    ]
    durations = summarise(run(done, workers=["one", "two"], ended=START + timedelta(seconds=120))).durations
    assert (durations.wall_s, durations.work_s, durations.gpu_s) == (120.0, 180.0, 240.0)
    assert durations.busy == pytest.approx(0.5)
    assert durations.at_once == pytest.approx(1.5)


def test_workers_of_a_run_that_was_killed_are_known_by_their_jobs() -> None:
    done = [finished(job("a"), worker="one"), finished(job("b"), worker="two"), finished(job("c"), worker="")]
    assert summarise(run(done, workers=["two"])).workers == ["one", "two"]
    minute: dict[str, Any] = {"duration_s": 60.0, "worker": "one"}
    alone = run([finished(job("a"), **minute)], workers=[], ended=START + timedelta(seconds=120))
    assert summarise(alone).durations.busy == pytest.approx(0.5)


def test_what_was_built_for_a_job_is_work_on_no_gpu() -> None:
    done = [finished(job("a", gpus=1), worker="one", duration_s=60.0, built_s=30.0)]
    durations = summarise(run(done, workers=["one"], ended=START + timedelta(seconds=120))).durations
    assert (durations.work_s, durations.gpu_s) == (90.0, 60.0)
    assert durations.busy == pytest.approx(0.75)


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    done = [finished(RWKV, started=START - timedelta(hours=2), duration_s=-5.0)]
    durations = summarise(run(done, ended=START - timedelta(hours=1))).durations
    assert (durations.wall_s, durations.work_s, durations.busy) == (0.0, 0.0, None)


def test_nothing_ran() -> None:
    summary = summarise(run([]))
    assert summary.tally == JobCounts()
    assert summary.durations.busy is None


def test_json_and_back() -> None:
    summary = summarise(TODAY, [YESTERDAY], ["run x: can't be read"])
    assert RunSummary.model_validate_json(summary.model_dump_json()) == summary
