"""Which engine runs the trials."""

from pathlib import Path

import pytest

from gpu_casebook.engines import choose as module
from gpu_casebook.engines.choose import choose, reachable
from gpu_casebook.errors import EngineError, UsageError
from gpu_casebook.trial import EngineName


class FakeDocker:
    name = EngineName.DOCKER
    version = "Docker 99.1"


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_docker", lambda root: FakeDocker())


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.mark.usefixtures("daemon")
def test_docker_where_a_daemon_answers(notes: list[str]) -> None:
    assert choose(None, Path(), notes.append).name is EngineName.DOCKER
    assert notes == ["engine: docker (Docker 99.1)"]


@pytest.mark.usefixtures("no_daemon")
def test_venv_where_none_answers_and_why(notes: list[str]) -> None:
    assert choose(None, Path(), notes.append).name is EngineName.VENV
    reason = "no Docker engine answers at unix:///nowhere/docker.sock: No such file or directory"
    assert notes == [f"engine: venv, with weaker isolation ({reason})"]


@pytest.mark.usefixtures("daemon")
def test_the_one_that_is_named(notes: list[str]) -> None:
    assert choose("venv", Path(), notes.append).name is EngineName.VENV
    assert choose("docker", Path(), notes.append).name is EngineName.DOCKER
    assert notes == []


@pytest.mark.usefixtures("no_daemon")
def test_docker_by_name_has_to_be_there(notes: list[str]) -> None:
    with pytest.raises(EngineError, match="no Docker engine answers at unix:///nowhere"):
        choose("docker", Path(), notes.append)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dokcer", "no engine 'dokcer' (did you mean docker?); there are: docker, venv"),
        ("venvs", "no engine 'venvs' (did you mean venv?); there are: docker, venv"),
        ("podman", "no engine 'podman'; there are: docker, venv"),
    ],
)
def test_an_engine_that_does_not_exist(name: str, said: str, notes: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        choose(name, Path(), notes.append)
    assert str(raised.value) == said


@pytest.mark.usefixtures("no_daemon")
def test_reachable_passes_over_what_does_not_answer() -> None:
    assert [engine.name for engine in reachable(Path())] == [EngineName.VENV]


@pytest.mark.usefixtures("daemon")
def test_reachable_has_all_that_answer() -> None:
    assert [engine.name for engine in reachable(Path())] == [EngineName.DOCKER, EngineName.VENV]
