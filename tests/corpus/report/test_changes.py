from typing import Any

import pytest

from casebook_workbench.corpus.model import Finished, Run
from casebook_workbench.corpus.report.changes import changes
from casebook_workbench.corpus.report.model import JobChange, Shift
from failure_signature.trials import Verdict
from tests.corpus.report.example import A100, H200, RWKV, TODAY, YESTERDAY, broke, finished, job, run, skipped

CONFIRMED, WRONG, SILENT = Verdict.CONFIRMED, Verdict.WRONG_FAILURE, Verdict.NOT_REPRODUCED


def night(number: int, *done: Finished, **changed: Any) -> Run:
    return run(done, night=number, **changed)


def only(now: Run, *earlier: Run) -> JobChange:
    (found,) = changes(now, earlier)
    return found


@pytest.mark.parametrize(
    ("before", "now", "shift"),
    [
        (CONFIRMED, SILENT, Shift.NEWLY_FAILING),
        (CONFIRMED, Verdict.INCONCLUSIVE, Shift.NEWLY_FAILING),
        (SILENT, CONFIRMED, Shift.NEWLY_CONFIRMED),
        (SILENT, WRONG, Shift.FAILS_OTHERWISE),
    ],
)
def test_another_verdict_on_the_same_device_in_the_same_environment(
    before: Verdict, now: Verdict, shift: Shift
) -> None:
    found = only(night(2, finished(RWKV, now)), night(1, finished(RWKV, before)))
    assert (found.shift, found.before, found.now) == (shift, before, now)
    assert found.since == night(1).id


@pytest.mark.parametrize("verdict", [CONFIRMED, SILENT])
def test_the_same_verdict_is_no_change_wherever_it_came_from(verdict: Verdict) -> None:
    assert changes(night(2, finished(RWKV, verdict, device=A100)), [night(1, finished(RWKV, verdict))]) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"device": A100}, f"{A100}, before {H200}"),
        ({"drifted": True}, "drifted, before exact"),
        ({"job": job("rwkv6-backward", environment_key="cd34")}, "another lock, image or Python"),
    ],
)
def test_another_verdict_elsewhere_is_not_newly_failing(changed: dict[str, Any], told: str) -> None:
    of = changed.pop("job", RWKV)
    found = only(night(2, finished(of, SILENT, **changed)), night(1, finished(RWKV)))
    assert found.shift is Shift.ELSEWHERE
    assert found.where == told


def test_an_environment_that_nobody_knows_counts_as_the_same() -> None:
    unknown = job("rwkv6-backward", environment_key="")
    found = only(night(2, finished(unknown, SILENT)), night(1, finished(RWKV)))
    assert found.shift is Shift.NEWLY_FAILING


def test_like_is_compared_with_like_across_a_fleet_whose_gpus_take_turns() -> None:
    earlier = [night(1, finished(RWKV)), night(2, finished(RWKV, SILENT, device=A100))]
    assert changes(night(3, finished(RWKV)), earlier) == []
    assert only(night(3, finished(RWKV, SILENT)), *earlier).shift is Shift.NEWLY_FAILING
    assert changes(night(3, finished(RWKV, SILENT, device=A100)), earlier) == []


def test_the_latest_verdict_counts() -> None:
    earlier = [night(1, finished(RWKV, SILENT)), night(2, finished(RWKV))]
    found = only(night(3, finished(RWKV, SILENT)), *earlier)
    assert (found.shift, found.since) == (Shift.NEWLY_FAILING, night(2).id)
    moved = only(night(3, finished(RWKV, SILENT, device=A100)), *earlier)
    assert (moved.shift, moved.since) == (Shift.ELSEWHERE, night(2).id)


def test_a_night_in_which_a_machine_broke_hides_nothing() -> None:
    earlier = [night(1, finished(RWKV)), night(2, broke(RWKV))]
    found = only(night(3, finished(RWKV, SILENT)), *earlier)
    assert (found.shift, found.since) == (Shift.NEWLY_FAILING, night(1).id)


@pytest.mark.parametrize("end", [broke(RWKV), skipped(RWKV)])
def test_a_case_that_had_a_verdict_and_has_none_now_is_told(end: Finished) -> None:
    found = only(night(2, end), night(1, finished(RWKV)))
    assert (found.shift, found.before, found.now) == (Shift.UNSEEN, CONFIRMED, end.end)


def test_a_case_that_never_had_a_verdict_is_not_missed() -> None:
    assert changes(night(2, broke(RWKV)), [night(1, broke(RWKV))]) == []


def test_new_and_gone() -> None:
    found = changes(night(2, finished(job("new"))), [night(1, finished(job("old")))])
    assert [(each.shift, each.name) for each in found] == [(Shift.NEW, "new/current"), (Shift.GONE, "old/current")]


def test_what_another_selection_leaves_out_is_not_gone() -> None:
    everything = night(1, finished(RWKV), finished(job("other")))
    assert changes(night(2, finished(RWKV), selection="rwkv*"), [everything]) == []
    part = night(2, finished(RWKV), selection="rwkv*")
    assert only(night(3, finished(RWKV)), everything, part).shift is Shift.GONE


def test_nothing_is_new_in_the_first_run() -> None:
    assert changes(TODAY, []) == []


def test_what_asks_for_attention_comes_first() -> None:
    found = [change.shift for change in changes(TODAY, [YESTERDAY])]
    assert found == [
        Shift.NEWLY_FAILING,
        Shift.ELSEWHERE,
        Shift.UNSEEN,
        Shift.NEWLY_CONFIRMED,
        Shift.NEW,
        Shift.GONE,
    ]
