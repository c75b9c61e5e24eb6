"""Images pushed to a registry and pulled from it, by real engines and a real registry server on this machine."""

import io
import os
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpu_casebook.console import Console
from gpu_casebook.daemon.client import APIError, DockerClient, load, save, tag
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.errors import CasebookError, EngineError, UsageError
from gpu_casebook.images import build as images
from gpu_casebook.images.bases import BOOTSTRAPPED, Base, read_pin
from gpu_casebook.images.build import ensure, push_all
from gpu_casebook.images.registry import VARIABLE, name_in
from gpu_casebook.images.stages import Stage, plan
from gpu_casebook.trial import Recipe
from tests.fake_docker import FakeDocker
from tests.images.test_build import silent

ROOT = Path(__file__).parents[2]
SERVER = "docker-registry"
BASE = Base("", f"{BOOTSTRAPPED}, of another machine")
MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"


@contextmanager
def server(place: Path, more: str = "") -> Iterator[str]:
    """Run a registry; yield its address."""
    if shutil.which(SERVER) is None:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER") == "1":
            pytest.fail(f"no {SERVER} on the PATH: apt-get install {SERVER}")
        pytest.skip(f"no {SERVER} on the PATH")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = place / "config.yml"
    storage = f"storage: {{filesystem: {{rootdirectory: {place}/data}}}}"
    settings.write_text(f"version: 0.1\n{storage}\nhttp: {{addr: '127.0.0.1:{port}'}}\n{more}")
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([SERVER, "serve", str(settings)], stdout=log, stderr=log)
    try:
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def engines(docker_client: DockerClient, podman_client: PodmanClient) -> tuple[DockerClient, PodmanClient]:
    return docker_client, podman_client


@pytest.fixture
def recipe() -> Recipe:
    """A recipe that nobody has had before."""
    return Recipe(image="cpu", lock=f"# no packages, {uuid.uuid4()}\nprobe=={time.time_ns()}\n")


def make(client: DockerClient, recipe: Recipe, stage: Stage | None = None) -> Stage:
    """Put a tiny image with the labels of the recipe's on the engine, as if it had been built there."""
    made, stage = plan(ROOT, recipe, BASE), stage or plan(ROOT, recipe, BASE)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(made.key))
    labels = {"key": stage.key, "image": stage.image, "base": BASE.identity, "part": "environment"}
    changes = [f'LABEL casebook.{name}="{value}"' for name, value in labels.items()]
    repository, tag = made.reference.split(":")
    client.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag, changes=changes)
    return made


def hand_over(client: DockerClient, other: DockerClient, stage: Stage) -> None:
    """Move the image to another engine."""
    load(other, save(client, [stage.reference]))
    remove(client, stage.reference)


def remove(client: DockerClient, *names: str) -> None:
    for name in names:
        with suppress(APIError):
            client.api.remove_image(name, force=True)


@pytest.fixture
def gone(docker_client: DockerClient) -> Iterator[Callable[[DockerClient, str], None]]:
    """Removes an image with all of its names, and again when the test is over."""
    taken: list[tuple[DockerClient, str]] = []

    def take(client: DockerClient, id_: str) -> None:
        remove(client, id_)
        taken.append((client, id_))

    yield take
    for client, id_ in taken:
        remove(client, id_)


def digest_there(registry: str, name: str) -> str:
    """Ask the server itself."""
    repository, _, tag = name.partition("/")[2].rpartition(":")
    url = f"http://{registry}/v2/{repository}/manifests/{tag}"
    request = urllib.request.Request(url, method="HEAD", headers={"Accept": MANIFESTS})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.headers["Docker-Content-Digest"])


Gone = Callable[[DockerClient, str], None]


@pytest.mark.docker
@pytest.mark.podman
def test_what_one_engine_pushes_another_pulls_in_the_place_of_a_build(
    engines: tuple[DockerClient, PodmanClient],
    recipe: Recipe,
    registry: str,
    gone: Gone,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker_client, podman_client = engines
    make(docker_client, recipe)
    before = ensure(docker_client, ROOT, recipe, silent)
    assert before.digest is None
    (pushed,) = push_all(docker_client, ROOT, [recipe], registry, silent)
    name, _, digest = pushed.partition("@")
    pinned = read_pin(ROOT / "images").reference
    assert name == f"{registry}/{plan(ROOT, recipe, Base(pinned, pinned)).reference}"
    assert digest == digest_there(registry, name)
    assert ensure(docker_client, ROOT, recipe, silent) == before.model_copy(update={"digest": digest})
    gone(docker_client, before.id)
    monkeypatch.setenv(VARIABLE, registry)
    for client in (docker_client, podman_client):
        pulled = ensure(client, ROOT, recipe, silent)
        gone(client, pulled.id)
        assert (pulled.name, pulled.base, pulled.digest) == (before.name, BASE.identity, digest)
        assert pulled.id.removeprefix("sha256:") == before.id.removeprefix("sha256:")


@pytest.mark.docker
@pytest.mark.podman
def test_what_podman_pushed_docker_pulls_and_podman_tells_no_digest_of_its_own_manifest(
    docker_client: DockerClient, podman_client: PodmanClient, recipe: Recipe, registry: str, gone: Gone
) -> None:
    hand_over(docker_client, podman_client, make(docker_client, recipe))
    (pushed,) = push_all(podman_client, ROOT, [recipe], registry, silent)
    name, _, digest = pushed.partition("@")
    assert digest == digest_there(registry, name)
    made = ensure(podman_client, ROOT, recipe, silent)
    gone(podman_client, made.id)
    assert made.digest is None
    pulled = ensure(docker_client, ROOT, recipe, silent, registry)
    gone(docker_client, pulled.id)
    assert (pulled.base, pulled.digest) == (BASE.identity, digest)


class BuiltError(Exception):
    pass


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    def construct(*_: object) -> None:
        raise BuiltError

    monkeypatch.setattr(images, "_construct", construct)


def told(client: DockerClient, recipe: Recipe, registry: str) -> str:
    """Return what a person who has no terminal is told before the image is built."""
    out = io.StringIO()
    with pytest.raises(BuiltError), Console(out).step("images") as note:
        ensure(client, ROOT, recipe, note, registry)
    first, line = [line for line in out.getvalue().splitlines() if "waiting for another build" not in line]
    assert (first, line.startswith("images: ")) == ("images ...", False)
    return line


@pytest.mark.docker
@pytest.mark.podman
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.usefixtures("built")
def test_where_nothing_can_be_pulled_one_line_says_why_and_the_image_is_built(
    which: int, engines: tuple[DockerClient, PodmanClient], recipe: Recipe, registry: str, tmp_path: Path
) -> None:
    docker_client, client = engines[0], engines[which]
    line = told(client, recipe, registry)
    assert line.startswith(f"{registry}/casebook/cpu:")
    assert line.endswith(" is not in the registry; building it instead")
    line = told(client, recipe, "localhost:9")
    assert "localhost:9/casebook/cpu:" in line
    assert line.endswith("connection refused; building it instead")
    with server(tmp_path, f"auth: {{htpasswd: {{realm: here, path: {tmp_path}/passwords}}}}") as closed:
        line = told(client, recipe, closed)
        assert line.startswith(f"{closed} gives no permission for {closed}/casebook/cpu:")
        assert f"docker login {closed}" in line
        made = make(docker_client, recipe)
        if client is not docker_client:
            hand_over(docker_client, client, made)
        with pytest.raises(EngineError, match=f"^{closed} gives no permission for .*docker login {closed}"):
            push_all(client, ROOT, [recipe], closed, silent)
    with pytest.raises(CasebookError, match=r"^could not push localhost:9/casebook/cpu:.*connection refused$"):
        push_all(client, ROOT, [recipe], "localhost:9", silent)
    remove(client, client.images.get(made.reference).id or "")


@pytest.mark.docker
@pytest.mark.usefixtures("built")
def test_an_image_of_another_recipe_is_not_taken(
    docker_client: DockerClient, recipe: Recipe, registry: str, gone: Gone
) -> None:
    """Somebody who may write to the registry has put it there under this recipe's name."""
    make(docker_client, recipe)
    id_ = ensure(docker_client, ROOT, recipe, silent).id
    push_all(docker_client, ROOT, [recipe], registry, silent)
    gone(docker_client, id_)
    other = Recipe(image="cpu", lock="# another\n")
    make(docker_client, recipe, plan(ROOT, other, BASE))
    forged = docker_client.images.get(plan(ROOT, recipe, BASE).reference)
    name = name_in(registry, ROOT, recipe)
    tag(docker_client, str(forged.id), name)
    docker_client.api.push(name)
    gone(docker_client, str(forged.id))
    assert told(docker_client, recipe, registry) == f"{name} is of another recipe, by its labels; building it instead"


@pytest.mark.parametrize(
    "address", ["http://localhost:5000", "localhost:5000/", "Some where", "-o", "registry.example/Owner"]
)
def test_an_address_that_is_none_is_one_line(address: str) -> None:
    with pytest.raises(
        UsageError, match=r"is no registry; write HOST\[:PORT\]\[/PATH\], such as registry.example/OWNER"
    ):
        ensure(FakeDocker([]).client, ROOT, Recipe(image="cpu", lock=""), silent, address)
