"""Who uses a GPU of this host. Locks are the kernel's own; a driver's library that answers as NVML does stands in."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from gpu_casebook.devices import hardware, ledger
from gpu_casebook.devices.hardware import lock_directory
from gpu_casebook.devices.ledger import SLOT_BYTES, hold, look, slots
from tests.devices.test_hardware import A100, H200, FakeNvml

GIB = 2**30
CORES = 8  # as many slots has each GPU here, of 17.5 GiB


@pytest.fixture(autouse=True)
def real_locks(none_set_aside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the usual place, where other processes look for them."""
    monkeypatch.setattr(hardware, "lock_directory", lock_directory)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "pynvml", FakeNvml([H200, A100]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ledger, "_POLL_S", 0.01)
    monkeypatch.setattr("os.cpu_count", lambda: CORES)


HOLDER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from gpu_casebook.devices import ledger
with ledger._Gpu("GPU-aaaa", "GPU 0", int(sys.argv[2]), print, print).hold(int(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(two_gpus: None, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds GPU 0 until its stdin closes."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), str(CORES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_gpu_is_held_by_one_process_at_a_time(holder: "subprocess.Popen[str]") -> None:
    told = threading.Event()
    notes: list[str] = []

    def wait(text: str) -> None:
        notes.append(text)
        assert holder.stdin
        holder.stdin.close()  # the other one gives it back once we have said that we wait
        told.set()

    with hold([0], wait):
        assert told.is_set()
        assert holder.wait(60) == 0
    assert len(notes) == 1
    assert notes[0].startswith(f"waiting for GPU 0: process {holder.pid} (")


def test_a_killed_holder_holds_nothing(holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.wait()
    notes: list[str] = []
    with hold([0], notes.append):
        pass
    assert notes == []


def test_another_gpu_is_free(holder: "subprocess.Popen[str]") -> None:
    notes: list[str] = []
    with hold([1], notes.append):
        pass
    assert notes == []


@pytest.mark.usefixtures("two_gpus")
def test_a_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    notes: list[str] = []
    with pytest.raises(ValueError, match="x"), hold([0, 1], notes.append):
        raise ValueError("x")
    with ExitStack() as stack:
        stack.enter_context(hold([1, 0], notes.append))
    assert notes == []


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_is_shared_by_those_who_share_and_by_nobody_else() -> None:
    told = threading.Event()
    order: list[str] = []

    def alone() -> None:
        with hold([0], lambda _: told.set()):
            order.append("alone")

    with hold([0], print, 0):
        with hold([0], pytest.fail, 0):
            order.append("shared")
        other = threading.Thread(target=alone)
        other.start()
        assert told.wait(60)
        order.append("still shared")
    other.join(60)
    assert order == ["shared", "still shared", "alone"]


def test_who_shares_waits_for_who_does_not(holder: "subprocess.Popen[str]") -> None:
    notes: list[str] = []

    def wait(text: str) -> None:
        notes.append(text)
        holder.kill()

    with hold([0], wait, 0):
        assert holder.wait(60)
    assert notes[0].startswith(f"waiting for GPU 0: process {holder.pid} (")


@pytest.mark.usefixtures("two_gpus")
def test_locks_are_for_all_users_of_the_host(tmp_path: Path) -> None:
    with hold([0], print):
        directory = tmp_path / "casebook-gpus"
        assert directory.stat().st_mode & 0o7777 == 0o777
        assert (directory / "GPU-aaaa.lock").stat().st_mode & 0o666 == 0o666


def test_a_gpu_nobody_knows_is_locked_by_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "pynvml", FakeNvml([], there=False))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with hold([5], print):
        assert (tmp_path / "casebook-gpus" / "index-5.lock").exists()


def test_slots_are_as_many_as_memory_and_cores_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert [slots(size) for size in (80 * GIB, 16 * GIB, SLOT_BYTES, GIB, 0)] == [16, 8, 1, 1, 1]


def _most_at_once(memory: int, wanted: int) -> int:
    """Return how many of `wanted` threads held so much of GPU 0 at the same time at most."""
    now, most, counting = 0, 0, threading.Lock()

    def use(_number: int) -> None:
        nonlocal now, most
        with hold([0], lambda _: None, memory):
            with counting:
                now += 1
                most = max(most, now)
            time.sleep(0.5)
            with counting:
                now -= 1

    with ThreadPoolExecutor(wanted) as pool:
        list(pool.map(use, range(wanted)))
    return most


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("memory", "most"),
    [(0, CORES), (20 * GIB, CORES // 2), (60 * GIB, 2), (100 * GIB, 1), (1000 * GIB, 1)],
)
def test_no_more_share_a_gpu_than_its_memory_holds(memory: int, most: int) -> None:
    assert _most_at_once(memory, CORES + 2) == most


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("much", [None, 100 * GIB])
def test_who_waits_for_much_is_not_passed_by_who_needs_little(much: int | None) -> None:
    """There is room for the little one all the time, and with trials enough there would never be any for the other."""
    waits, order = threading.Event(), list[str]()

    def run(name: str, memory: int | None) -> None:
        with hold([0], lambda _: waits.set(), memory):
            order.append(name)

    with hold([0], print, 60 * GIB):
        first = threading.Thread(target=run, args=("much", much))
        first.start()
        assert waits.wait(60)
        later = threading.Thread(target=run, args=("little", 0))
        later.start()
        time.sleep(0.1)
        assert order == []
    first.join(60)
    later.join(60)
    assert order == ["much", "little"]


@pytest.mark.usefixtures("two_gpus")
def test_who_came_first_is_first() -> None:
    order = list[int]()

    def run(number: int, waits: threading.Event) -> None:
        with hold([0], lambda _: waits.set(), 100 * GIB):
            order.append(number)

    with ThreadPoolExecutor(5) as pool, hold([0], pytest.fail):
        for number in range(5):
            pool.submit(run, number, waits := threading.Event())
            assert waits.wait(60)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("two_gpus")
def test_a_run_that_began_earlier_passes_one_that_asked_earlier() -> None:
    order = list[int]()

    def run(since: int, waits: threading.Event) -> None:
        with hold([0], lambda _: waits.set(), 100 * GIB, since=since):
            order.append(since)

    with ThreadPoolExecutor(3) as pool, hold([0], pytest.fail):
        for since in (9, 8, 7):  # the first is at the gate when the others come
            pool.submit(run, since, waits := threading.Event())
            assert waits.wait(60)
    assert order == [9, 7, 8]


@pytest.mark.usefixtures("two_gpus")
def test_a_ticket_is_locked_before_others_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sees one that is not takes it for that of a killed process, and removes it."""
    lock, seen = ledger._lock, list[list[Path]]()

    def watched(file: IO[str], *how: int) -> bool:
        if not seen:  # the ticket is locked first
            seen.append(list(lock_directory().glob("*.ticket")))
        return lock(file, *how)

    monkeypatch.setattr(ledger, "_lock", watched)
    with hold([0], pytest.fail, 0):
        pass
    assert seen == [[]]
    assert not list(lock_directory().glob("*.new"))


@pytest.mark.usefixtures("two_gpus")
def test_the_ticket_of_a_killed_process_holds_up_nobody() -> None:
    (lock_directory() / "GPU-aaaa.0-killed.ticket").touch()
    with hold([0], pytest.fail):
        assert not list(lock_directory().glob("*.ticket"))


def test_a_pause_may_give_up(holder: "subprocess.Popen[str]") -> None:
    def give_up(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hold([0], lambda _: None, 0, give_up):
        pass
    holder.kill()
    holder.wait()
    with hold([0], pytest.fail):  # nothing was kept
        pass


@pytest.mark.usefixtures("two_gpus")
def test_who_looks_waits_for_no_slot() -> None:
    with ExitStack() as held:
        for _ in range(CORES):
            held.enter_context(hold([0], pytest.fail, 0))
        with look([0], pytest.fail), look([0, 1], pytest.fail):
            pass


@pytest.mark.usefixtures("two_gpus")
def test_nobody_is_alone_while_another_looks() -> None:
    waits, order = threading.Event(), list[str]()

    def alone() -> None:
        with hold([0], lambda _: waits.set()):
            order.append("alone")

    with look([0], pytest.fail):
        other = threading.Thread(target=alone)
        other.start()
        assert waits.wait(60)
        order.append("looked")
    other.join(60)
    assert order == ["looked", "alone"]


def test_who_looks_waits_for_who_is_alone(holder: "subprocess.Popen[str]") -> None:
    notes: list[str] = []

    def give_up(_seconds: float) -> None:
        holder.kill()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), look([0], notes.append, give_up):
        pass
    assert notes[0].startswith(f"waiting for GPU 0: process {holder.pid} (")
    holder.wait()
    with hold([0], pytest.fail):  # nothing was kept
        pass
