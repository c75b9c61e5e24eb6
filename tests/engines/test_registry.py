"""Which engine runs the trials."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_casebook.engines import registry
from gpu_casebook.engines.registry import choose, reachable
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.evidence import Evidence
from tests.conftest import PLAIN, Checkout, write_locks
from tests.fakes import FakeEngine

ROOT = Path(__file__).parents[2]


class FakeDocker(FakeEngine):
    name = "docker"
    version = "Docker 99.1"


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENGINES, "docker", f"{__name__}:FakeDocker")
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(FakeDocker=FakeDocker))


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.mark.usefixtures("daemon")
def test_docker_where_a_daemon_answers(notes: list[str]) -> None:
    assert choose(None, Path(), notes.append).name == "docker"
    assert notes == ["engine: docker (Docker 99.1)"]


@pytest.mark.usefixtures("no_daemon")
def test_venv_where_none_answers_and_why(notes: list[str]) -> None:
    assert choose(None, Path(), notes.append).name == "venv"
    reason = "no Docker engine answers at unix:///nowhere/docker.sock: No such file or directory"
    assert notes == [f"engine: venv, with weaker isolation ({reason})"]


@pytest.mark.usefixtures("daemon")
def test_the_one_that_is_named(notes: list[str]) -> None:
    assert choose("venv", Path(), notes.append).name == "venv"
    assert choose("docker", Path(), notes.append).name == "docker"
    assert notes == []


@pytest.mark.usefixtures("no_daemon")
def test_docker_by_name_has_to_be_there(notes: list[str]) -> None:
    with pytest.raises(EngineError, match="no Docker engine answers at unix:///nowhere"):
        choose("docker", Path(), notes.append)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "dokcer",
            "no engine 'dokcer' (did you mean docker?); there are: docker, podman, venv, charliecloud, apptainer",
        ),
        ("venvs", "no engine 'venvs' (did you mean venv?); there are: docker, podman, venv, charliecloud, apptainer"),
        ("slurm", "no engine 'slurm'; there are: docker, podman, venv, charliecloud, apptainer"),
    ],
)
def test_an_engine_that_does_not_exist(name: str, said: str, notes: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        choose(name, Path(), notes.append)
    assert str(raised.value) == said


@pytest.fixture
def no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine finds its program on PATH."""
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)


@pytest.mark.usefixtures("no_daemon", "no_program")
def test_reachable_passes_over_what_does_not_answer() -> None:
    assert [engine.name for engine in reachable(Path())] == ["venv"]


@pytest.mark.usefixtures("daemon", "no_program")
def test_reachable_has_all_that_answer() -> None:
    assert [engine.name for engine in reachable(Path())] == ["docker", "venv"]


def test_what_a_killed_run_left_is_removed_by_choosing(
    daemon: None, monkeypatch: pytest.MonkeyPatch, notes: list[str]
) -> None:
    monkeypatch.setattr(FakeDocker, "sweep", lambda _: ["container casebook-1"])
    choose("docker", Path(), notes.append)
    assert notes == ["left by a run that was killed: container casebook-1"]


@pytest.fixture
def third(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which another distribution adds an engine."""
    info = tmp_path / "site" / "third-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nthird = tests.engines.third:ThirdEngine\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runner"), str(info.parent)])}


@pytest.mark.parametrize("words", [["case", "plain", "--environment", "one"], ["corpus", "plain"]])
def test_a_third_engine_needs_nothing_but_to_be_registered(
    words: list[str], checkout: Checkout, third: dict[str, str]
) -> None:
    place = checkout.write(PLAIN, name="plain").parent
    (place / "repro.py").write_text("raise ValueError('sizes differ')\n")
    (place / "fixed.py").write_text("print('all good')\n")
    write_locks(place)
    command = [sys.executable, "-m", "gpu_casebook", *words, "--engine", "third"]
    done = subprocess.run(command, cwd=checkout.root, env=third, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (checkout.root / "local" / "evidence" / "plain").glob("*.json"):
        assert Evidence.read(path).engine.name == "third"
        assert "--engine third" in Evidence.read(path).command
    assert list((checkout.root / "local" / "evidence" / "plain").glob("one.*.json"))
