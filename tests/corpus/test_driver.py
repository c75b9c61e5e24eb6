import errno
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from casebook_workbench.corpus import driver as module
from casebook_workbench.corpus import schedule
from casebook_workbench.corpus.driver import ATTEMPTS, Driver
from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.journal import Journal, read
from casebook_workbench.corpus.model import End, Finished, Job, Run
from casebook_workbench.corpus.table import RunTable
from failure_signature.trials import Verdict
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.errors import MachineError
from tests.corpus.test_journal import NOW, finished, job

GPU = HostGpu(index=0, compute_capability="9.0", name="NVIDIA H200")
TWO_CORES = Machine(name="here", cores=2)
Answer = Callable[[Start], Event | BaseException]


def ends(start: Start) -> Event:
    return Event(job=start.job.name, worker="w1", finished=finished(start.job))


def goes(start: Start) -> Event:
    return Event(job=start.job.name, worker="w1", lost="it was killed")


def stops(start: Start) -> Event:
    stopped = finished(start.job, end=End.BROKE, verdict=None, reason="no space left on x", stops=True)
    return Event(job=start.job.name, worker="w1", finished=stopped)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeWorkers:
    """Does each job in a second when it is asked for news, one at a time, as `answers` say in turn; then they end well.

    What is to be built is there, without an answer.
    """

    def __init__(self, *answers: Answer, machines: Sequence[Machine] = (TWO_CORES,)) -> None:
        self.answers = list(answers)
        self.machines: Sequence[Machine] = machines
        self.starts: list[Start] = []
        self.most = 0
        self.clock = Clock()
        self._now: list[Start] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def start(self, start: Start) -> str:
        self.starts.append(start)
        self._now.append(start)
        self.most = max(self.most, len(self._now))
        return f"w{len(self._now)}"

    def events(self, within_s: float) -> Sequence[Event]:
        self.clock.now += 1.0
        start = self._now.pop(0)
        if start.builds:
            return [Event(job=start.job.name, worker="w1")]
        answer = self.answers.pop(0) if self.answers else ends
        event = answer(start)
        if isinstance(event, BaseException):
            raise event
        return [event]


class Bench:
    """A run of some jobs, and what its driver says."""

    def __init__(self, reports: Path, *jobs: Job) -> None:
        from casebook_workbench.corpus.journal import new_id
        from casebook_workbench.corpus.model import Settings

        self.reports = reports
        self.out = io.StringIO()
        self.jobs = list(jobs)
        settings = Settings(root="/checkout", reports=str(reports))
        run = Run(id=new_id(reports, NOW), started=NOW, settings=settings, jobs=self.jobs)
        self.journal = Journal.create(reports, run)

    def drive(self, workers: FakeWorkers, **more: object) -> None:
        shown = RunTable(self.out, len(self.jobs), len(self.journal.run.finished))
        Driver(journal=self.journal, workers=workers, display=shown, clock=workers.clock, **more).drive()  # type: ignore[arg-type]

    @property
    def ends(self) -> dict[str, End]:
        """As they stand on disk."""
        return {each.job.name: each.end for each in self.on_disk()}

    def on_disk(self) -> list[Finished]:
        return read(self.journal.directory).finished


@pytest.fixture
def make(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Bench]:
    def made(*jobs: Job) -> Bench:
        bench = Bench(tmp_path, *jobs)
        request.addfinalizer(bench.journal.close)
        return bench

    return made


def jobs(number: int) -> list[Job]:
    return [job(f"case-{n}") for n in range(number)]


def test_every_job_is_run_once_as_many_at_a_time_as_there_are_cores(make: Callable[..., Bench]) -> None:
    bench, workers = make(*jobs(5)), FakeWorkers()
    bench.drive(workers)
    assert sorted(start.job.name for start in workers.starts) == [job.name for job in bench.jobs]
    assert workers.most == 2
    assert bench.ends == {job.name: End.RAN for job in bench.jobs}
    assert bench.out.getvalue().count("confirmed case-") == 5
    assert read(bench.journal.directory).workers == ["w1"]


def test_the_longest_goes_first(make: Callable[..., Bench]) -> None:
    bench, workers = (
        make(job("short", expected_s=1.0), job("long", expected_s=9.0), job("mid", expected_s=5.0)),
        FakeWorkers(),
    )
    bench.drive(workers)
    assert [start.job.case for start in workers.starts] == ["long", "mid", "short"]


def test_a_gpu_runs_one_job_while_the_environment_of_the_next_is_built(make: Callable[..., Bench]) -> None:
    wanted = [job(name, gpus=1, environment_key=name, expected_s=9.0) for name in ("a", "b")]
    bench, workers = make(*wanted), FakeWorkers(machines=[Machine(name="here", cores=2, gpus=[GPU])])
    bench.drive(workers)
    starts = [(start.job.case, start.builds, tuple(start.gpus)) for start in workers.starts]
    assert starts == [("a", True, ()), ("b", True, ()), ("a", False, (0,)), ("b", False, (0,))]
    assert bench.ends == {each.name: End.RAN for each in wanted}
    assert [each.built_s for each in bench.on_disk()] == [1.0, 2.0]


def test_what_is_there_already_is_not_built(make: Callable[..., Bench]) -> None:
    bench = make(job("a", gpus=1, environment_key="k"))
    workers = FakeWorkers(machines=[Machine(name="here", cores=2, gpus=[GPU])])
    bench.drive(workers, ready={"k"})
    assert [start.builds for start in workers.starts] == [False]


def test_an_environment_that_can_not_be_built_is_the_end_of_its_job(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(job("a", gpus=1, environment_key="k"), job("b"))
    workers = FakeWorkers(machines=[Machine(name="here", cores=1, gpus=[GPU])])
    broke = finished(bench.jobs[0], end=End.BROKE, verdict=None, reason="no such wheel")
    fails = Event(job=bench.jobs[0].name, worker="w1", finished=broke)
    events = workers.events
    first = [fails]

    def news(within_s: float) -> Sequence[Event]:
        if first:
            workers._now.pop(0)
            return [first.pop()]
        return events(within_s)

    monkeypatch.setattr(workers, "events", news)
    bench.drive(workers)
    assert bench.ends == {"a/e": End.BROKE, "b/e": End.RAN}


def test_each_end_is_on_disk_before_anything_is_waited_for(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(*jobs(3))
    seen: list[int] = []
    workers = FakeWorkers(machines=[Machine(name="here", cores=1)])
    events = workers.events

    def news(within_s: float) -> Sequence[Event]:
        seen.append(len(bench.on_disk()))
        return events(within_s)

    monkeypatch.setattr(workers, "events", news)
    bench.drive(workers)
    assert seen == [0, 1, 2]


def test_no_worker_waits_for_the_disk(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench, workers = make(*jobs(4)), FakeWorkers()
    started: list[int] = []
    append = bench.journal.append

    def appended(ended: list[Finished]) -> None:
        started.append(len(workers.starts))
        append(ended)

    monkeypatch.setattr(bench.journal, "append", appended)
    bench.drive(workers)
    assert started == [3, 4, 4, 4]  # two run at once


def test_what_was_finished_before_is_not_run_again(make: Callable[..., Bench]) -> None:
    bench, workers = make(*jobs(3)), FakeWorkers()
    bench.journal.append([finished(bench.jobs[1], end=End.REUSED)])
    bench.drive(workers)
    assert [start.job.case for start in workers.starts] == ["case-0", "case-2"]
    assert "[2/3]" in bench.out.getvalue()


def test_jobs_in_an_environment_that_ran_know_it_is_prepared(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    choose = schedule.choose

    def chosen(waiting: Sequence[Job], running: Sequence[Start], machine: Machine, ready: set[str]) -> list[Start]:
        seen.append(set(ready))
        return choose(waiting, running, machine, ready)

    monkeypatch.setattr(schedule, "choose", chosen)
    bench = make(*[job(f"case-{n}", environment_key=f"k{n}") for n in range(3)])
    bench.drive(FakeWorkers(machines=[Machine(name="here", cores=1)]), ready={"old"})
    assert seen[0] == {"old"}
    assert seen[-1] >= {"k0", "k1"}


class TestLost:
    def test_a_job_whose_worker_went_away_is_run_again_and_shown_as_such(self, make: Callable[..., Bench]) -> None:
        bench, workers, told = make(*jobs(1)), FakeWorkers(goes), list[int]()
        bench.drive(workers, lost=lambda: told.append(1))
        [done] = bench.on_disk()
        assert (done.end, done.verdict) == (End.RAN, Verdict.CONFIRMED)
        assert [lost.reason for lost in done.lost] == ["it was killed"]
        assert "lost case-0/e: worker w1" in bench.out.getvalue()
        assert told == [1]

    def test_a_job_that_kills_its_workers_is_given_up_and_the_rest_goes_on(self, make: Callable[..., Bench]) -> None:
        bench = make(job("killer", expected_s=9.0), job("good", expected_s=1.0))
        workers = FakeWorkers(machines=[Machine(name="here", cores=1)])
        workers.answers = [goes] * ATTEMPTS
        bench.drive(workers)
        by_name = {each.job.case: each for each in bench.on_disk()}
        assert by_name["killer"].end is End.BROKE
        assert len(by_name["killer"].lost) == ATTEMPTS
        assert by_name["killer"].verdict is None
        assert by_name["killer"].reason == f"{ATTEMPTS} workers were lost with it, the last: w1: it was killed"
        assert by_name["killer"].duration_s == ATTEMPTS * 1.0
        assert by_name["good"].end is End.RAN
        assert by_name["good"].lost == []


class TestStops:
    def test_a_machine_that_can_not_go_on_for_a_moment_loses_nothing(self, make: Callable[..., Bench]) -> None:
        bench = make(*jobs(2))
        bench.drive(FakeWorkers(stops))
        assert set(bench.ends.values()) == {End.RAN}
        assert [len(each.lost) for each in bench.on_disk()] == [0, 1]

    def test_one_that_stays_so_ends_the_run_and_the_job_is_left(self, make: Callable[..., Bench]) -> None:
        bench = make(job("first", expected_s=9.0), job("second", expected_s=5.0), job("third"))
        bench.journal.append([finished(bench.jobs[2])])
        one = Machine(name="here", cores=1)
        with pytest.raises(MachineError, match="no space left on x"):
            bench.drive(FakeWorkers(stops, stops, machines=[one]))
        assert bench.ends == {"third/e": End.RAN}
        assert [job.case for job in read(bench.journal.directory).left] == ["first", "second"]

    def test_what_ended_at_the_same_moment_is_not_lost(
        self, make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench, workers = make(*jobs(2)), FakeWorkers(stops, machines=[Machine(name="here", cores=2)])
        monkeypatch.setattr(module, "MACHINE_STOPS", 1)
        monkeypatch.setattr(workers, "events", lambda _: [ends(workers.starts[1]), stops(workers.starts[0])])
        with pytest.raises(MachineError):
            bench.drive(workers)
        assert list(bench.ends.values()) == [End.RAN]

    def test_of_several_machines_one_may_be_full(self, make: Callable[..., Bench]) -> None:
        bench = make(*jobs(1))
        machines = [Machine(name="a", cores=1), Machine(name="b", cores=1)]
        bench.drive(FakeWorkers(stops, stops, machines=machines))
        assert bench.ends == {"case-0/e": End.RAN}


class TestGpus:
    def test_a_gpu_that_is_set_aside_in_mid_run_skips_what_needs_it(self, make: Callable[..., Bench]) -> None:
        bench = make(job("a", gpus=1, expected_s=9.0), job("b", gpus=1, expected_s=1.0), job("c"))
        workers = FakeWorkers(machines=[Machine(name="here", cores=1, gpus=[GPU])])

        def breaks(start: Start) -> Event:
            broken = HostGpu(index=0, compute_capability="9.0", aside="GPU 0 is set aside: Xid 79")
            workers.machines = [Machine(name="here", cores=1, gpus=[broken])]
            return ends(start)

        workers.answers = [breaks]
        bench.drive(workers)
        assert bench.ends == {"a/e": End.RAN, "b/e": End.SKIPPED, "c/e": End.RAN}
        assert [each.reason for each in bench.on_disk() if each.end is End.SKIPPED] == ["GPU 0 is set aside: Xid 79"]

    def test_a_gpu_is_had_by_one_at_a_time(self, make: Callable[..., Bench]) -> None:
        bench = make(job("a", gpus=1), job("b", gpus=1))
        workers = FakeWorkers(machines=[Machine(name="here", cores=8, gpus=[GPU])])
        bench.drive(workers)
        assert workers.most == 1
        assert [tuple(start.gpus) for start in workers.starts] == [(0,), (0,)]

    def test_where_every_machine_is_gone_the_rest_is_left(self, make: Callable[..., Bench]) -> None:
        bench, workers = make(*jobs(2)), FakeWorkers()

        def last(start: Start) -> Event:
            workers.machines = []
            return goes(start)

        workers.answers = [last, goes]
        with pytest.raises(MachineError, match="no machine is left"):
            bench.drive(workers)
        assert bench.ends == {}


def test_after_one_that_is_not_confirmed_nothing_starts_where_that_was_asked(make: Callable[..., Bench]) -> None:
    def fails(start: Start) -> Event:
        return Event(job=start.job.name, worker="w1", finished=finished(start.job, verdict=Verdict.FIX_FAILS))

    bench, workers = make(*jobs(5)), FakeWorkers(fails)
    bench.drive(workers, fail_fast=True)
    assert len(workers.starts) == 2  # the other one had begun
    assert len(read(bench.journal.directory).left) == 3
    bench.drive(FakeWorkers())
    assert len(bench.ends) == 5


def test_ctrl_c_leaves_what_was_finished(make: Callable[..., Bench]) -> None:
    bench = make(*jobs(4))
    with pytest.raises(KeyboardInterrupt):
        bench.drive(FakeWorkers(ends, lambda _: KeyboardInterrupt()))
    assert bench.ends == {"case-0/e": End.RAN}


def test_ctrl_c_in_the_middle_of_recording_leaves_what_was_finished_once(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(*jobs(3))
    write, interrupts = bench.journal._write, [KeyboardInterrupt()]

    def written(text: bytes) -> None:
        write(text)
        if interrupts:
            raise interrupts.pop()  # the line is on disk, and not counted yet

    monkeypatch.setattr(bench.journal, "_write", written)
    with pytest.raises(KeyboardInterrupt):
        bench.drive(FakeWorkers())
    assert len(bench.journal.run.finished) == 1
    assert bench.on_disk() == bench.journal.run.finished
    assert (bench.journal.directory / "journal.jsonl").read_text().count("\n") == 1


def test_a_full_disk_leaves_what_was_finished(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(*jobs(4))

    def filled(start: Start) -> Event:
        def pwrite(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "pwrite", pwrite)
        return ends(start)

    with pytest.raises(OSError, match="No space left") as caught:
        bench.drive(FakeWorkers(ends, filled))
    assert str(caught.value.filename).endswith("journal.jsonl")
    monkeypatch.undo()
    assert bench.ends == {"case-0/e": End.RAN}
    bench.drive(FakeWorkers())
    assert len(bench.ends) == 4
