import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from gpu_casebook.files import write_whole


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def test_a_file_is_written_with_the_same_bytes_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.md"
    assert write_whole(path, "ä\nb\n") == path
    assert path.read_bytes() == "ä\nb\n".encode()
    write_whole(path, "c", sync=True)
    assert path.read_bytes() == b"c"
    assert names(path.parent) == ["x.md"]


def test_threads_can_write_one_file_at_once(tmp_path: Path) -> None:
    begun, path = Barrier(2), tmp_path / "x.md"

    def write(text: str) -> Path:
        begun.wait()
        for _ in range(200):
            write_whole(path, text)
        return path

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, ["a" * 9999, "b" * 9999])) == [path, path]
    assert len(set(path.read_text())) == 1
    assert names(tmp_path) == ["x.md"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["write_text", "replace"])
def test_what_breaks_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    path = write_whole(tmp_path / "x.md", "old")
    before = Path.write_text

    def breaks(self: Path, *args: Any, **more: Any) -> None:
        if step == "write_text":
            before(self, "half")
        raise error(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, step, breaks)
    with pytest.raises(error) as caught:
        write_whole(path, "new")
    assert (names(tmp_path), path.read_text()) == (["x.md"], "old")
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path)


def test_with_sync_the_file_and_its_name_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(stat.S_ISDIR(os.fstat(file).st_mode)))
    write_whole(tmp_path / "x", "text")
    assert synced == []
    write_whole(tmp_path / "x", "text", sync=True)
    assert synced == [False, True]


def test_two_processes_write_one_file_without_mixing_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    children = []
    for letter in "ab":
        pid = os.fork()
        if not pid:
            for _ in range(200):
                write_whole(path, letter * 100_000)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    assert path.read_text() in {"a" * 100_000, "b" * 100_000}
    assert names(tmp_path) == ["x"]
