"""Each engine, once for the whole run: environments are dear, trials are not."""

import os
from collections.abc import Iterator

import pytest

from runner.engines.base import Recipe
from runner.engines.docker_client import DockerClient, connect
from runner.errors import EngineError
from runner.images.build import ensure
from tests.engines.subjects import ROOT, Bench, DockerSubject, Subject, VenvSubject, this_python


@pytest.fixture(scope="session")
def docker_client() -> Iterator[DockerClient]:
    try:
        client = connect()
    except EngineError as error:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER") == "1":
            pytest.fail(f"CASEBOOK_REQUIRE_DOCKER=1, and {error}")
        pytest.skip(str(error))
    yield client
    client.close()


@pytest.fixture(scope="session")
def python_image(docker_client: DockerClient) -> str:
    """An image with a Python in it: the cpu image with nothing installed, or the one that CASEBOOK_TEST_IMAGE names."""
    named = os.environ.get("CASEBOOK_TEST_IMAGE")
    if named:
        return named
    return ensure(docker_client, ROOT, Recipe(image="cpu", lock=""), print).name


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
