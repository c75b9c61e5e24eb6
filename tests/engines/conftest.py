"""Each engine, once for the whole run: environments are dear, trials are not."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from casebook_rootless.archive import unpack
from gpu_casebook.daemon.client import DockerClient, connect, find_image, load, save
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.engines.podman.engine import PodmanEngine
from gpu_casebook.trial import Recipe
from tests.engines.subjects import Bench, CharliecloudSubject, DockerSubject, Subject, VenvSubject, this_python

KINDS = [
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("podman", marks=[pytest.mark.docker, pytest.mark.podman]),  # its image comes from Docker
    pytest.param("charliecloud", marks=pytest.mark.docker),  # so does its
    "venv",
]


@pytest.fixture(scope="session")
def docker_subject(docker_client: DockerClient, python_image: str) -> DockerSubject:
    return DockerSubject(docker_client, Recipe(image="cpu", lock="", use_image=python_image))


@pytest.fixture(scope="session")
def podman_subject(podman_client: PodmanClient, python_image: str) -> DockerSubject:
    if find_image(podman_client, python_image) is None:
        with closing(connect(600)) as docker:
            load(podman_client, save(docker, [python_image]))
    where = {"CONTAINER_HOST": podman_client.address}
    return DockerSubject(podman_client, Recipe(image="cpu", lock="", use_image=python_image), PodmanEngine, where)


@pytest.fixture(scope="session")
def charliecloud_subject(
    docker_client: DockerClient, python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CharliecloudSubject]:
    if not shutil.which("ch-run"):
        said = pytest.fail if os.environ.get("CASEBOOK_REQUIRE_CHARLIECLOUD") == "1" else pytest.skip
        said("no ch-run on PATH: Charliecloud is not installed")
    top = tmp_path_factory.mktemp("charliecloud")
    for name in ("store", "scratch"):
        (top / name).mkdir()
    archive = top / "image.tar"
    with archive.open("wb") as file:
        file.writelines(save(docker_client, [python_image]))
    unpack(archive, top / "store")
    archive.unlink()
    yield CharliecloudSubject(top / "store", top / "scratch", Recipe(image="cpu", lock="", use_image=python_image))
    shutil.rmtree(top)  # half a gigabyte, which pytest would keep


@pytest.fixture(scope="session")
def venv_subject(tmp_path_factory: pytest.TempPathFactory) -> VenvSubject:
    top = tmp_path_factory.mktemp("venv")
    (top / "scratch").mkdir()
    return VenvSubject(top / "cache", top / "scratch", Recipe(image="cpu", lock="", python=this_python()))


@pytest.fixture(scope="session", params=KINDS)
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
def charliecloud_bench(charliecloud_subject: CharliecloudSubject) -> Iterator[Bench]:
    with charliecloud_subject.make() as engine:
        yield Bench(engine, engine.prepare(charliecloud_subject.recipe, print))


@pytest.fixture(scope="session")
def venv_bench(venv_subject: VenvSubject) -> Iterator[Bench]:
    with venv_subject.make() as engine:
        yield Bench(engine, engine.prepare(venv_subject.recipe, print))
