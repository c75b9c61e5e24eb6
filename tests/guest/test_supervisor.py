"""What the supervisor reads off /proc."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_casebook.guest import supervisor
from gpu_casebook.guest.supervisor import Process, Stored, descendants, memory, passed_limit, read_process


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and that nobody has asked for."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    os.waitpid(pid, 0)


def test_a_process_as_it_is() -> None:
    me = read_process(os.getpid())
    assert me
    assert (me.pid, me.parent) == (os.getpid(), os.getppid())
    assert me.state == "R"
    assert me.lives
    assert me.resident > 2**20


def test_a_name_with_brackets_and_spaces_is_read_over() -> None:
    script = "import ctypes, os; ctypes.CDLL(None).prctl(15, b') S 1 (x', 0, 0, 0); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        found = read_process(child.pid)
    assert found
    assert found.parent == os.getpid()


def test_the_dead_are_not_counted(zombie: int) -> None:
    assert zombie not in [process.pid for process in descendants(os.getpid())]
    found = read_process(zombie)
    assert found
    assert not found.lives
    assert read_process(2**22 + 1) is None


def test_threads_may_outlive_the_first() -> None:
    assert Process(1, 0, "Z", threads=2, resident=0).lives
    assert not Process(1, 0, "Z", threads=1, resident=0).lives


def test_what_ended_since_it_was_looked_at_uses_no_memory(zombie: int) -> None:
    stale = Process(zombie, os.getpid(), "S", threads=1, resident=2**30)
    assert memory([stale], limit=2**20) == 0


def refuse(*_: object, **__: object) -> str:
    raise PermissionError


def test_memory_without_the_kernels_help_is_what_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    me = read_process(os.getpid())
    assert me
    monkeypatch.setattr(Path, "read_text", refuse)
    assert memory([me], limit=0) > 2**20


def test_processes_are_counted_before_anything_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [Process(number, 1, "R", threads=1, resident=2**30) for number in range(2**22 + 1, 2**22 + 100)]
    monkeypatch.setattr(supervisor, "memory", None)
    assert passed_limit(busy, {"processes": 50, "memory_bytes": 1}, Stored([])) == "processes"


def test_files_count_as_memory_and_once(tmp_path: Path) -> None:
    stored = Stored([str(tmp_path)])
    assert stored.look() == 0
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(b"x" * 2**20)
    os.link(tmp_path / "inner" / "a", tmp_path / "b")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**40)
    stored.due = 0.0
    assert 2**20 <= stored.look() < 2**21
    assert memory([], limit=0, stored=2**20) == 2**20
