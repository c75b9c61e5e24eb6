"""What a person sees of a run."""

import io
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from rich.console import Console as Rich

from casebook_workbench.corpus.events import Machine, Start
from casebook_workbench.corpus.model import End, Finished, Job, Lost
from casebook_workbench.corpus.table import Doing, RunTable, line
from failure_signature.trials import Verdict
from gpu_casebook import console
from tests.corpus.pool_jobs import job

BOX = Machine(name="box", cores=2)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def finished(of: Job, verdict: Verdict | None = Verdict.CONFIRMED, **fields: object) -> Finished:
    values = {"end": End.RAN, "worker": "w1", "duration_s": 12.34, "started": datetime(2026, 1, 1, tzinfo=UTC)} | fields
    return Finished.model_validate({"job": of, "verdict": verdict, **values})


def jobs(count: int, expected_s: float | None = 10) -> list[Job]:
    return [job(f"case-{number}", expected_s=expected_s) for number in range(count)]


def doing(of: Job, worker: str = "w1", *gpus: int, **more: object) -> Doing:
    return Doing(Start(job=of, gpus=gpus), worker, Clock().now, **more)  # type: ignore[arg-type]


def show(shown: RunTable, waiting: Sequence[Job] = (), *running: Doing) -> None:
    shown.show([BOX], waiting, {each.start.job.name: each for each in running})


# --- plain lines


def test_a_line_for_each_job_with_its_number_verdict_time_and_worker() -> None:
    out, all_jobs = io.StringIO(), jobs(10)
    with RunTable(out, 100, done=90) as shown:
        show(shown, all_jobs[1:], doing(all_jobs[0], lately="trial 1 of 3"))
        shown.ended(finished(all_jobs[0]))
        shown.ended(finished(all_jobs[1], worker="w2", duration_s=0.05))
    assert out.getvalue().splitlines() == [
        "[ 91/100] confirmed case-0/e (12.3 s, w1)",
        "[ 92/100] confirmed case-1/e (0.1 s, w2)",
    ]


def test_a_log_says_what_runs_and_what_waits_for_a_gpu_while_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SILENCE_S", 0.02)
    out, all_jobs = io.StringIO(), jobs(3)
    with RunTable(out, 5, done=2, clock=lambda: 1001.5) as shown:
        waits = doing(all_jobs[1], "w2", 0, lately="waiting for GPU 0: another runner has it")
        show(shown, all_jobs[2:], doing(all_jobs[0], "w1", 0), waits)
        deadline = time.monotonic() + 30
        while "case-1" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    first = next(each for each in out.getvalue().splitlines() if "case-1" in each)
    expected = "corpus: 2 of 5 done, 2 running, 1 of them waiting for a GPU (case-0/e 1.5 s, case-1/e 1.5 s), about "
    assert first.startswith(expected)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (finished(job("a"), reason="why not say it"), "confirmed a/e (12.3 s, w1)"),
        (
            finished(job("a"), Verdict.FIX_FAILS, reason="fixed fails too"),
            "fix-fails a/e (12.3 s, w1): fixed fails too",
        ),
        (finished(job("a"), None, end=End.BROKE, reason="no such\nimage"), "broke a/e (12.3 s, w1): no such image"),
        (
            finished(job("a"), None, end=End.SKIPPED, reason="no GPU", worker="", duration_s=0),
            "skipped a/e (0.0 s): no GPU",
        ),
        (finished(job("a"), end=End.REUSED, worker="", duration_s=0), "confirmed (reused) a/e (0.0 s)"),
        (
            finished(job("a"), lost=[Lost(worker="w2", reason="killed", after_s=1)]),
            "confirmed a/e (12.3 s, w1, after 1 lost worker)",
        ),
        (
            finished(job("a"), lost=[Lost(worker="w2", reason="killed", after_s=1)] * 2),
            "confirmed a/e (12.3 s, w1, after 2 lost workers)",
        ),
    ],
)
def test_what_came_of_a_job_is_told_and_why_unless_all_is_well(end: Finished, told: str) -> None:
    assert line(end, 1, 1) == f"[1/1] {told}"


def test_a_lost_worker_is_told_and_the_job_counts_once() -> None:
    out, all_jobs = io.StringIO(), jobs(1)
    shown = RunTable(out, 1)
    shown.lost(all_jobs[0], Lost(worker="w1", reason="it was killed", after_s=1.25))
    shown.ended(finished(all_jobs[0], worker="w2"))
    assert out.getvalue().splitlines() == [
        "lost case-0/e: worker w1 after 1.2 s: it was killed",
        "[1/1] confirmed case-0/e (12.3 s, w2)",
    ]


def test_what_a_case_says_can_not_make_two_lines_or_move_the_cursor() -> None:
    told = line(finished(job("a"), Verdict.FIX_FAILS, reason="\x1b[2Jone\ntwo\x07" + "x" * 999), 1, 1)
    assert told.startswith("[1/1] fix-fails a/e (12.3 s, w1): one twox")
    assert len(told) < 250


# --- the time left


def test_the_time_left_goes_down_with_the_work() -> None:
    clock, all_jobs = Clock(), jobs(4)
    state = RunTable(io.StringIO(), 4, clock=clock)
    show(state, all_jobs)
    assert state.left_s == 20
    show(state, all_jobs[1:], doing(all_jobs[0]))
    clock.now += 4
    assert state.left_s == 18
    show(state, all_jobs[1:])
    assert state.left_s == 15
    for each in all_jobs:
        state.ended(finished(each))
    show(state)
    assert state.left_s == 0
    assert (state.done, state.total, state.elapsed_s) == (4, 4, 4)


def test_what_a_build_takes_is_not_taken_off_the_job() -> None:
    clock, (one,) = Clock(), jobs(1)
    state = RunTable(io.StringIO(), 1, clock=clock)
    show(state, (), Doing(Start(job=one, builds=True), "w1", clock.now))
    clock.now += 4
    assert state.left_s == 10


# --- the table


@pytest.fixture
def clock() -> Clock:
    return Clock()


def drawn(table: RunTable, width: int = 100) -> str:
    out = io.StringIO()
    Rich(file=out, width=width).print(table.drawn())
    return "\n".join(row.rstrip() for row in out.getvalue().splitlines())


def table(all_jobs: list[Job], clock: Clock, done: int = 0) -> RunTable:
    made = RunTable(Terminal(), len(all_jobs) + done, done, clock)
    show(made, all_jobs)
    return made


def test_the_table_tells_progress_time_left_and_what_each_worker_does_since_when(clock: Clock) -> None:
    all_jobs = jobs(10)
    shown = table(all_jobs, clock, done=2)
    tenth, second = doing(all_jobs[1], "w10"), doing(all_jobs[2], "w2", 0, 3, lately="building: step 3 of 7")
    show(shown, all_jobs[3:], tenth, second)
    clock.now += 5
    shown.ended(finished(all_jobs[0]))
    rows = drawn(shown).splitlines()
    assert rows[0].startswith("corpus ━")
    assert rows[0].endswith(" 3/12  5.0 s, left 40.0 s")
    assert rows[1] == "1 confirmed"
    assert [row.split() for row in rows[2:4]] == [
        ["w2", "case-2/e", "on", "GPU", "0,3", "5.0", "s", "building:", "step", "3", "of", "7"],
        ["w10", "case-1/e", "5.0", "s"],
    ]
    assert rows[4:] == ["[ 3/12] confirmed case-0/e (12.3 s, w1)"]


def test_the_table_says_so_where_nobody_knows_how_long_it_takes(clock: Clock) -> None:
    assert drawn(table(jobs(3, expected_s=None), clock)).splitlines()[0].endswith(" 0/3  0 s, left ?")


def test_what_ended_tells_how_long_those_take_that_nobody_has_timed(clock: Clock) -> None:
    all_jobs = jobs(5, expected_s=None)
    shown = table(all_jobs, clock)
    shown.ended(finished(all_jobs[0], None, end=End.BROKE, duration_s=1000))
    show(shown, all_jobs[2:])
    assert shown.left_s is None
    shown.ended(finished(all_jobs[1], duration_s=20))
    assert shown.left_s == 30


def test_the_table_shows_the_last_results_and_does_not_grow(clock: Clock) -> None:
    all_jobs = jobs(100)
    shown = table(all_jobs, clock)
    for each in all_jobs[:50]:
        shown.ended(finished(each))
    rows = drawn(shown).splitlines()
    assert [row.split()[3] for row in rows[-5:]] == [f"case-{number}/e" for number in range(45, 50)]
    assert len(rows) == 7


def test_a_narrow_terminal_cuts_rows_and_does_not_break_them(clock: Clock) -> None:
    all_jobs = jobs(2)
    shown = table(all_jobs, clock)
    show(shown, (), doing(all_jobs[0], lately="a very long note " * 20))
    assert len(drawn(shown, width=60).splitlines()) == 2


def test_nothing_that_is_said_is_taken_for_markup(clock: Clock) -> None:
    all_jobs = jobs(1)
    shown = table(all_jobs, clock)
    show(shown, (), doing(all_jobs[0], lately="[red]tensor[0][/red] [/]"))
    assert "[red]tensor[0][/red] [/]" in drawn(shown)


def test_what_is_not_confirmed_and_who_was_lost_stay_in_sight() -> None:
    out, all_jobs = Terminal(), jobs(3)
    with RunTable(out, 3) as shown:
        show(shown, (), doing(all_jobs[2]))
        shown.lost(all_jobs[0], Lost(worker="w1", reason="it was killed", after_s=1))
        shown.ended(finished(all_jobs[1], Verdict.FIX_FAILS, reason="see [there]"))
        assert "case-1/e" not in drawn(shown)
    assert "lost case-0/e: worker w1 after 1.0 s: it was killed" in out.getvalue()
    assert "[1/3] fix-fails case-1/e (12.3 s, w1): see [there]" in out.getvalue()
