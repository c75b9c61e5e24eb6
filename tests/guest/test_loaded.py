"""What trials load, seen in real processes."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_casebook.guest import loaded

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that starts this one, and return it once that runs; both wait for input, or its end."""
    started: list[subprocess.Popen[bytes]] = []

    def below(program: Path | str, code: str) -> subprocess.Popen[bytes]:
        parent = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        child = f"{code}; print(flush=True); input()"
        command = [sys.executable, "-S", "-c", parent, str(program), "-S", "-c", child]
        started.append(subprocess.Popen(command, stdin=-1, stdout=-1))
        assert started[-1].stdout
        started[-1].stdout.readline()
        return started[-1]

    yield below
    for process in started:
        process.communicate()


def test_a_library_and_another_python(start: Start, tmp_path: Path) -> None:
    other, library = tmp_path / "python3", tmp_path / "libcudart.so.13"
    other.symlink_to(sys.executable)
    library.write_bytes(bytes(4096))
    mapped = f"import mmap; f = open({str(library)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0)"
    process = start(other, mapped)
    found = list(loaded.follow(process.pid, sys.executable, lambda _pause: True))
    assert found == [("library", str(library)), ("python", str(other))]


def test_each_is_told_once(start: Start, tmp_path: Path) -> None:
    other, looks = tmp_path / "python3", iter([False, False, True])
    other.symlink_to(sys.executable)
    process = start(other, "pass")
    assert list(loaded.follow(process.pid, sys.executable, lambda _pause: next(looks))) == [("python", str(other))]
    assert next(looks, None) is None  # it looked three times


def test_it_ends_with_the_trial_and_not_after_its_pause(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_PAUSE_S", (60.0, 60.0))
    over, ended = threading.Event(), threading.Event()
    process = start(sys.executable, "pass")

    def look() -> None:
        list(loaded.follow(process.pid, sys.executable, over.wait))
        ended.set()

    threading.Thread(target=look, daemon=True).start()
    time.sleep(0.2)
    assert not ended.is_set()
    over.set()
    assert ended.wait(10.0)


def test_it_ends_where_nothing_is_left(start: Start) -> None:
    process = start(sys.executable, "pass")
    looked: list[float] = []

    def wait(pause: float) -> None:
        looked.append(pause)
        if len(looked) == 1:
            process.communicate()

    assert list(loaded.follow(process.pid, "/elsewhere/python", wait)) == [("python", sys.executable)]
    assert len(looked) == 1
