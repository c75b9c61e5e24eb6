import _thread
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebook_ray import node as fleet_node
from casebook_ray.node import Attested, given, pack, unpack
from casebook_workbench.corpus.events import Event, Start
from casebook_workbench.corpus.pool import end_all
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.engines.scratch import scratch
from gpu_casebook.revision import own_revision
from tests.corpus.pool_jobs import job, settings
from tests.corpus.test_fleet import host_gpu
from tests.corpus.test_pool import appears

WORK = "tests.corpus.pool_jobs:run"


@pytest.mark.parametrize(
    ("assigned", "found", "gets"),
    [
        (["1"], [host_gpu(0), host_gpu(1)], [1]),
        (["GPU-1"], [host_gpu(0), host_gpu(1)], [1]),
        (["2", "3"], [], [2, 3]),
        (["1"], [host_gpu(0), host_gpu(1, aside="broken")], []),
        (["GPU-elsewhere"], [host_gpu(0), host_gpu(1)], []),
        ([], [host_gpu(0)], []),
    ],
)
def test_which_gpus_a_job_gets(assigned: list[str], found: list[HostGpu], gets: list[int]) -> None:
    wanted = job("a", gpus=len(assigned), compute_capability=">=9.0")
    assert list(given(wanted, assigned, found)) == gets


def test_a_gpu_that_the_job_can_not_use_is_not_taken() -> None:
    assert list(given(job("a", gpus=1, compute_capability=">=10.0"), ["0"], [host_gpu(0)])) == []


def test_a_node_removes_what_a_killed_job_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = fleet_node._place()
    program = "from gpu_casebook.engines.owner import Owner; print(Owner.current(), end='')"
    gone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    with scratch(place) as running:
        (place / "left").mkdir()
        (place / "left.owner").write_text(gone)
        fleet_node.attest()
        assert sorted(path.name for path in place.iterdir()) == sorted([running.name, f"{running.name}.owner"])


def test_the_runner_of_a_node_is_the_one_that_is_there() -> None:
    assert Attested.model_validate_json(fleet_node.attest()).runner == own_revision()


class TestRun:
    @pytest.fixture(autouse=True)
    def _idle(self) -> Iterator[None]:
        yield
        end_all(fleet_node._IDLE, 10.0)
        fleet_node._IDLE.clear()

    def run(self, place: Path, does: str) -> Event:
        return fleet_node._run(WORK, Start(job=job("a", does)), settings(place))

    def test_a_worker_stays_for_the_next_task(self, tmp_path: Path) -> None:
        first, second = self.run(tmp_path, "pid"), self.run(tmp_path, "pid")
        assert first.finished
        assert second.finished
        assert first.finished.reason == second.finished.reason

    def test_one_that_dies_is_no_end_of_its_job_and_the_next_gets_another(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "die SIGSEGV").lost == "it ended with SIGSEGV"
        assert self.run(tmp_path, "pid").finished

    def test_a_task_that_ray_cancels_has_its_job_clean_up(self, tmp_path: Path) -> None:
        """Ray marks the signal as pending, and sends none."""

        def cancel() -> None:
            try:
                appears(tmp_path / "a.started")
            finally:  # the test waits for it, and must end
                _thread.interrupt_main()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(KeyboardInterrupt):
            self.run(tmp_path, "wait a")
        canceller.join()
        assert (tmp_path / "a.cleaned").exists()


# --- what travels


@pytest.fixture
def root(tmp_path: Path) -> Path:
    case = tmp_path / "here" / "cases" / "tiny"
    (case / "locks").mkdir(parents=True)
    (case / "locks" / "current.txt").write_text("numpy==1\n")
    (case / "repro.py").write_text("print(1)\n")
    (case / "data.bin").write_bytes(bytes(range(256)))
    (case / "fixed.py").symlink_to("repro.py")
    (case / "__pycache__").mkdir()
    (case / "__pycache__" / "repro.pyc").touch()
    (case.parent / "other").mkdir()
    return tmp_path / "here"


def test_a_case_arrives_as_it_was(root: Path, tmp_path: Path) -> None:
    unpack(pack(root, "cases/tiny"), tmp_path / "there")
    arrived = tmp_path / "there" / "cases" / "tiny"
    assert {path.relative_to(arrived).as_posix() for path in arrived.rglob("*")} == {
        "locks",
        "locks/current.txt",
        "repro.py",
        "fixed.py",
        "data.bin",
    }
    assert (arrived / "data.bin").read_bytes() == bytes(range(256))
    assert (arrived / "fixed.py").read_text() == "print(1)\n"
    assert [path.name for path in (tmp_path / "there" / "cases").iterdir()] == ["tiny"]


def test_a_case_that_is_gone(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(root, "cases/gone")
