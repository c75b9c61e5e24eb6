"""Each engine, once for the whole run: environments are dear, trials are not."""

from collections.abc import Iterator

import pytest

from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.trial import Recipe
from tests.engines.subjects import Bench, DockerSubject, Subject, VenvSubject, this_python


@pytest.fixture(scope="session")
def docker_subject(docker_client: DockerClient, python_image: str) -> DockerSubject:
    return DockerSubject(docker_client, Recipe(image="cpu", lock="", use_image=python_image))


@pytest.fixture(scope="session")
def venv_subject(tmp_path_factory: pytest.TempPathFactory) -> VenvSubject:
    top = tmp_path_factory.mktemp("venv")
    (top / "scratch").mkdir()
    return VenvSubject(top / "cache", top / "scratch", Recipe(image="cpu", lock="", python=this_python()))


@pytest.fixture(scope="session", params=[pytest.param("docker", marks=pytest.mark.docker), "venv"])
def subject(request: pytest.FixtureRequest) -> Subject:
    made: Subject = request.getfixturevalue(f"{request.param}_subject")
    return made


@pytest.fixture(scope="session")
def bench(subject: Subject) -> Iterator[Bench]:
    with subject.make() as engine:
        yield Bench(engine, engine.prepare(subject.recipe, print))


@pytest.fixture(scope="session")
def docker_bench(docker_subject: DockerSubject) -> Iterator[Bench]:
    with docker_subject.make() as engine:
        yield Bench(engine, engine.prepare(docker_subject.recipe, print))


@pytest.fixture(scope="session")
def venv_bench(venv_subject: VenvSubject) -> Iterator[Bench]:
    with venv_subject.make() as engine:
        yield Bench(engine, engine.prepare(venv_subject.recipe, print))
