"""Worker processes of this machine. What they run here is `tests.corpus.pool_jobs`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from casebook_workbench.corpus import pool as pools
from casebook_workbench.corpus.events import Event, Machine, Start
from casebook_workbench.corpus.model import Job
from casebook_workbench.corpus.pool import Pool
from casebook_workbench.corpus.schedule import choose
from tests.corpus.pool_jobs import job, settings

PATIENCE_S = 60.0
WORK = "tests.corpus.pool_jobs:run"
BOX = Machine(name="box", cores=2)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Pool(settings(tmp_path), tmp_path / "logs", lambda: BOX, WORK) as made:
        yield made


def start(pool: Pool, wanted: Job, *gpus: int) -> str:
    return pool.start(Start(job=wanted, gpus=gpus))


def until(pool: Pool, count: int) -> list[Event]:
    """Events up to the `count`-th that is the last one of its job."""
    seen: list[Event] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(event.said is None for event in seen) < count:
        assert time.monotonic() < deadline, seen
        seen += pool.events(1.0)
    return seen


def ends(pool: Pool, count: int = 1) -> dict[str, Event]:
    return {event.job.partition("/")[0]: event for event in until(pool, count) if event.said is None}


def reason(pool: Pool) -> str:
    (event,) = ends(pool).values()
    return event.finished.reason if event.finished else str(event.lost)


def appears(path: Path) -> str:
    return wait_for(lambda: path.read_text() if path.exists() else "")


def wait_for(look: Callable[[], str]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return seen


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- jobs


def test_a_job_runs_in_another_process_and_its_end_comes_back(pool: Pool) -> None:
    name = start(pool, job("a", "pid"))
    (event,) = until(pool, 1)
    assert event.finished
    assert event.finished.job == job("a", "pid")
    assert (event.job, event.worker) == ("a/e", name)
    assert name == "w1"
    assert int(event.finished.reason) not in {os.getpid(), 0}


def test_a_worker_stays_for_the_next_job(pool: Pool) -> None:
    pids = set()
    for number in range(3):
        start(pool, job(str(number), "pid"))
        pids.add(reason(pool))
    assert len(pids) == 1


def test_jobs_that_are_started_together_have_a_worker_each(pool: Pool) -> None:
    workers = {start(pool, job(str(number), "pid")) for number in range(3)}
    assert workers == {"w1", "w2", "w3"}
    assert len({event.finished.reason for event in ends(pool, 3).values() if event.finished}) == 3


def test_the_gpus_that_the_driver_chose_reach_the_job(pool: Pool) -> None:
    start(pool, job("a", gpus=2), 1, 3)
    assert reason(pool) == "1,3"


def test_a_job_that_is_only_built_is_still_to_be_run(pool: Pool, tmp_path: Path) -> None:
    wanted = job("a", "pid", gpus=1)
    assert pool.start(Start(job=wanted, builds=True)) == "w1"
    (event,) = until(pool, 1)
    assert event == Event(job=wanted.name, worker="w1")
    assert (tmp_path / "a.built").exists()
    assert start(pool, wanted, 0) == "w1", "the same worker is free again"
    assert ends(pool)["a"].finished


def test_what_a_worker_does_is_told_and_the_end_comes_after_it(pool: Pool) -> None:
    start(pool, job("a", "note step 3 of 7"))
    events = until(pool, 1)
    assert [event.finished is None for event in events] == [True, False]
    assert (events[0].worker, events[0].said) == ("w1", "building ...")


def test_what_a_job_prints_goes_to_a_file(pool: Pool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start(pool, job("a", "print from the depths"))
    ends(pool)
    assert (tmp_path / "logs" / "w1.log").read_text().count("from the depths\n") == 2
    assert capfd.readouterr() == ("", "")


def test_no_news_is_waited_for_no_longer_than_asked(pool: Pool) -> None:
    start(pool, job("a", "wait a"))
    assert list(pool.events(0.0)) == []


# --- workers that go away


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("die SIGKILL", "it was killed: by somebody, or by the kernel when memory ran out"),
        ("die SIGSEGV", "it ended with SIGSEGV"),
        ("exit 3", "it ended with exit status 3"),
    ],
)
def test_a_worker_that_dies_gives_its_job_back(pool: Pool, does: str, why: str) -> None:
    start(pool, job("a", does))
    (event,) = until(pool, 1)
    assert event == Event(job="a/e", worker="w1", lost=why)


def test_another_worker_takes_its_place_and_the_others_go_on(pool: Pool, tmp_path: Path) -> None:
    start(pool, job("other", "wait other"))
    assert start(pool, job("a", "die-once mark")) == "w2"
    assert ends(pool)["a"].lost
    assert start(pool, job("a", "die-once mark")) == "w2"
    assert ends(pool)["a"].finished
    assert not is_gone(int(appears(tmp_path / "other.started")))


def test_a_worker_that_is_killed_from_outside_is_seen_without_waiting_for_more(pool: Pool, tmp_path: Path) -> None:
    start(pool, job("a", "wait a"))
    os.kill(int(appears(tmp_path / "a.started")), signal.SIGKILL)
    (event,) = pool.events(PATIENCE_S)
    assert event.lost


def test_an_idle_worker_that_dies_is_no_loss(pool: Pool) -> None:
    start(pool, job("a", "pid"))
    os.kill(int(reason(pool)), signal.SIGKILL)
    assert list(pool.events(5.0)) == []
    start(pool, job("b", "pid"))
    assert reason(pool)


def test_a_worker_that_died_unseen_costs_the_next_job_no_attempt(pool: Pool) -> None:
    start(pool, job("a", "pid"))
    pid = int(reason(pool))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: "gone" if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) else "")
    start(pool, job("b", "pid"))
    assert ends(pool)["b"].finished


def test_where_no_process_can_be_started_the_job_is_given_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fails)
    start(pool, job("a"))
    begun = time.monotonic()
    (event,) = pool.events(PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert event.lost == "no process could be started: Resource temporarily unavailable"


# --- the end


def test_leaving_the_pool_interrupts_jobs_and_lets_them_clean_up(tmp_path: Path) -> None:
    with Pool(settings(tmp_path), tmp_path / "logs", lambda: BOX, WORK) as made:
        start(made, job("a", "wait a"))
        start(made, job("idle", "pid"))
        pids = [int(appears(tmp_path / "a.started"))]
        pids.append(int(reason(made)))
    assert (tmp_path / "a.cleaned").exists()
    assert all(map(is_gone, pids))


def test_a_job_that_does_not_end_is_killed_with_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "STOP_S", 0.5)
    with Pool(settings(tmp_path), tmp_path / "logs", lambda: BOX, WORK) as made:
        start(made, job("a", "stubborn a"))
        pid = int(appears(tmp_path / "a.started"))
    assert is_gone(pid)


def test_ctrl_c_on_the_way_out_kills_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pool(settings(tmp_path), tmp_path / "logs", lambda: BOX, WORK).__enter__()
    start(made, job("a", "stubborn a"))
    pid = int(appears(tmp_path / "a.started"))
    process = next(iter(made._workers.values())).process
    wait = process.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(process, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.__exit__(None, None, None)
    assert is_gone(pid)


DRIVER = """
import sys, signal
from pathlib import Path
from casebook_workbench.corpus.pool import Pool
from casebook_workbench.corpus.events import Machine, Start
from tests.corpus.pool_jobs import job, settings

signal.signal(signal.SIGINT, signal.default_int_handler)
place = Path(sys.argv[1])
with Pool(settings(place), place / "logs", lambda: Machine(name="box", cores=2), {work!r}) as pool:
    for number, does in enumerate(sys.argv[2:]):
        pool.start(Start(job=job(str(number), does)))
    while True:
        pool.events(1.0)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """A driver in a process of its own, whose jobs do what is told."""
    made: list[subprocess.Popen[bytes]] = []

    def run(*does: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DRIVER.format(work=WORK), str(tmp_path), *does]
        made.append(subprocess.Popen(command, start_new_session=True))
        return made[-1]

    yield run
    for process in made:
        process.kill()
        process.wait()


def test_kill_9_of_the_driver_leaves_no_worker_and_lets_jobs_clean_up(
    driver: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = driver("wait a", "stubborn b")
    pids = [int(appears(tmp_path / f"{name}.started")) for name in "ab"]
    process.kill()
    for pid in pids:
        wait_for(lambda pid=pid: "gone" if is_gone(pid) else "")  # type: ignore[misc]
    assert (tmp_path / "a.cleaned").exists()


def test_ctrl_c_reaches_the_driver_alone_which_ends_the_workers(
    driver: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = driver("wait a")
    pid = int(appears(tmp_path / "a.started"))
    assert os.getpgid(pid) != os.getpgid(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(PATIENCE_S)
    assert is_gone(pid)
    assert (tmp_path / "a.cleaned").exists()


# --- the machine


def test_after_a_job_that_found_the_disk_full_nothing_starts_until_the_others_have_ended(
    pool: Pool, tmp_path: Path
) -> None:
    running = [Start(job=job("fills", "wait fills"))]
    pool.start(running[0])
    appears(tmp_path / "fills.started")
    start(pool, job("a", "stops"))
    ends(pool)
    assert choose([job("b")], running, pool.machines[0], ()) == []
    (tmp_path / "fills.go").touch()
    ends(pool)
    assert choose([job("b")], [], pool.machines[0], ())
    assert list(pool.machines) == [BOX]


def test_a_gpu_that_a_job_had_set_aside_is_seen_after_it(tmp_path: Path) -> None:
    looks: list[int] = []

    def look() -> Machine:
        looks.append(1)
        return BOX

    with Pool(settings(tmp_path), tmp_path / "logs", look, WORK) as made:
        assert list(made.machines) == list(made.machines) == [BOX]
        start(made, job("cpu"))
        ends(made)
        assert made.machines
        assert len(looks) == 1
        start(made, job("gpu", gpus=1), 0)
        ends(made)
        assert made.machines
        assert len(looks) == 2
