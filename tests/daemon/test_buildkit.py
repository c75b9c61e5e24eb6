"""Builds by BuildKit: which docker does it, and what becomes of a build that ends too early."""

import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, cast

import psutil
import pytest

from gpu_casebook.daemon import buildkit
from gpu_casebook.daemon.client import DockerClient, address, connect, load, save
from gpu_casebook.errors import BuildError, EngineError, MachineError
from gpu_casebook.packages.settings import BuildSettings
from tests.daemon import remote
from tests.engines.subjects import eventually

MARK = f"buildkit-{os.getpid()}"  # other tests run beside these
TAG = f"casebook-test/{MARK}:1"
PLAIN = 'echo "Usage: docker build"; test "$DOCKER_BUILDKIT" = 1 && echo "  --secret stringArray"'
WITHOUT_PLUGIN = 'echo "ERROR: BuildKit is enabled but the buildx component is missing or broken." >&2; exit 1'


@pytest.fixture
def dockers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """Put a docker with each of these programs on the PATH, in this order, and nothing else but the shell."""

    def made(*programs: str) -> list[Path]:
        paths = [tmp_path / str(number) / "docker" for number in range(len(programs))]
        for path, text in zip(paths, programs, strict=True):
            path.parent.mkdir()
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", os.pathsep.join(str(path.parent) for path in paths))
        return paths

    return made


def test_the_first_docker_that_can_build_with_buildkit_is_taken(dockers: Callable[..., list[Path]]) -> None:
    _, second, _ = dockers(WITHOUT_PLUGIN, PLAIN, PLAIN)
    assert buildkit.program() == str(second)


@pytest.mark.parametrize("programs", [[], [WITHOUT_PLUGIN]])
def test_where_none_can_one_line_says_what_to_install(dockers: Callable[..., list[Path]], programs: list[str]) -> None:
    dockers(*programs)
    with pytest.raises(MachineError, match=r"^no docker command on the PATH .* install docker-buildx-plugin \(.*\)$"):
        buildkit.program()


BUILDX = """\
case "$*" in *--help*) echo "  --secret stringArray"; exit;; esac
echo "arguments: $*"
echo "engine: $DOCKER_HOST $BUILDX_BUILDER, proxy: $HTTP_PROXY"
echo '#0 building with "default" instance using docker driver'
echo
echo '#5 [2/2] RUN false && exit 7'
echo '#5 ERROR: process "/bin/sh -c false && exit 7" did not complete successfully: exit code: 7'
echo '------'
echo 'ERROR: failed to solve: process "/bin/sh -c false && exit 7" did not complete successfully: exit code: 7'
exit 1
"""


def test_a_newer_docker_gets_the_same_engine_and_fails_in_the_same_words(
    dockers: Callable[..., list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dockers(BUILDX)
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    client = cast("DockerClient", SimpleNamespace(ping=lambda: True))
    settings = BuildSettings("export UV_DEFAULT_INDEX=http://me:pass@x", None, {"HTTP_PROXY": "http://me:pass@proxy"})
    with context("FROM scratch\n") as file:
        output = started(client, file, settings, BASE="debian")
        arguments, engine = next(output), next(output)
        with pytest.raises(BuildError) as caught:
            list(output)
    assert str(caught.value) == f"could not build {TAG}: a command ended with exit status 7"
    assert engine == "engine: unix:///run/mine.sock default, proxy: http://me:pass@proxy"
    assert "--build-arg=BASE=debian --build-arg=HTTP_PROXY " in arguments
    assert "pass" not in arguments  # every user of this machine sees them


# On an engine


@contextmanager
def context(dockerfile: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            entry = tarfile.TarInfo("Dockerfile")
            entry.size = len(dockerfile)
            archive.addfile(entry, io.BytesIO(dockerfile.encode()))
        file.seek(0)
        yield file


def built(client: DockerClient, dockerfile: str, settings: BuildSettings | None = None, **arguments: str) -> list[str]:
    with context(dockerfile) as file:
        return list(started(client, file, settings, **arguments))


def started(
    client: DockerClient, file: IO[bytes], settings: BuildSettings | None = None, **arguments: str
) -> Generator[str, None, None]:
    return buildkit.build(
        client,
        file,
        dockerfile="Dockerfile",
        tag=TAG,
        labels={"casebook.test": MARK},
        arguments=arguments,
        settings=settings or BuildSettings(""),
    )


@pytest.fixture
def client(docker_client: DockerClient) -> Iterator[DockerClient]:
    yield docker_client
    for image in docker_client.api.images(filters={"label": f"casebook.test={MARK}"}):
        docker_client.api.remove_image(image["Id"], force=True)


@pytest.mark.docker
def test_tag_labels_and_secrets(client: DockerClient, python_image: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("the bundle\n")
    settings = BuildSettings("export WORD='open sesame'\n", tmp_path / "ca.pem", {"no_proxy": "a.example"})
    secrets = "--mount=type=secret,id=settings --mount=type=secret,id=ca.pem"
    check = '. /run/secrets/settings && test "$WORD" = "open sesame" && test -n "$no_proxy" && cat /run/secrets/ca.pem'
    check += f" && : {time.time_ns()}"  # a step that the engine remembers prints nothing
    lines = built(client, f"ARG BELOW\nFROM ${{BELOW}}\nUSER 0\nRUN {secrets} {check}\n", settings, BELOW=python_image)
    assert any(line.endswith(" the bundle") for line in lines)
    image = client.images.get(TAG)
    assert image.labels["casebook.test"] == MARK
    assert "a.example" not in str([image.history(), image.attrs])


@pytest.mark.docker
def test_a_command_that_fails_is_a_build_error_of_one_line(client: DockerClient, python_image: str) -> None:
    with pytest.raises(BuildError) as caught:
        built(client, f"FROM {python_image}\nRUN echo no >&2 && exit 7\n")
    assert str(caught.value) == f"could not build {TAG}: a command ended with exit status 7"


@pytest.mark.docker
def test_a_full_disk_is_the_machines_fault(client: DockerClient, python_image: str) -> None:
    with pytest.raises(MachineError, match=r"\(the disk of the engine's machine is full\)$"):
        built(client, f"FROM {python_image}\nRUN echo 'a: No space left on device (os error 28)' && exit 2\n")


@pytest.mark.docker
def test_an_engine_that_is_gone_is_no_build_error(client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    monkeypatch.setattr(client, "ping", lambda: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(EngineError, match=f"could not build {TAG}: "):
        built(client, "FROM scratch\n")


@pytest.mark.docker
def test_closing_ends_the_build_and_leaves_no_process(client: DockerClient, python_image: str) -> None:
    if not address(client).startswith("unix://"):
        pytest.skip("the engine is on another machine")
    word = f"sleep {time.time_ns() / 1e9:.6f}"  # a name that no other process has
    with context(f"FROM {python_image}\nRUN echo begun && {word}\n") as file, closing(started(client, file)) as lines:
        assert any(line.endswith(" begun") for line in lines)
        assert processes(word)
    eventually(lambda: not processes(word))  # the engine may be a moment behind docker
    assert not [tag for image in client.api.images() for tag in image["RepoTags"] or () if tag == TAG]


def processes(word: str) -> list[int]:
    """Of the build's command, and of the docker that asked for it."""
    found = psutil.process_iter(["pid", "cmdline"])
    words = (word, TAG)
    return [each.pid for each in found if any(one in " ".join(each.info["cmdline"] or ()) for one in words)]


@pytest.mark.docker
@pytest.mark.slow
def test_the_engine_behind_ssh_builds(
    docker_client: DockerClient, python_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := remote.missing():
        pytest.skip(reason)
    with remote.daemon() as second, remote.ssh_server(second) as server:
        monkeypatch.setenv("PATH", server.variables["PATH"])
        monkeypatch.setenv("DOCKER_HOST", server.address)
        with closing(connect()) as client:
            load(client, save(docker_client, [python_image]))
            built(client, f"FROM {python_image}\nRUN true\n")
            assert client.images.get(TAG).labels["casebook.test"] == MARK
