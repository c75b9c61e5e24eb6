"""The only module that imports the Docker SDK: one connection, our labels, and every failure as one line.

Callers elsewhere take `DockerClient` and the helpers from here, and wrap what they call on a client in `speaking`.
"""

import os
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import requests
import urllib3
from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from gpu_casebook.daemon.ssh_tunnel import SCHEME, Tunnel
from gpu_casebook.errors import BuildError, CasebookError, EngineError, MachineError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.trial import Note

__all__ = ["APIError", "Container", "DeviceRequest", "DockerClient", "LogConfig", "Mount", "Ulimit"]
"""Names of the SDK that others take from here."""

LABEL = "casebook"
"""Every image, container and volume of ours carries labels that begin with this and a dot."""

PATIENCE_S = 60
"""How long an engine may take to answer."""

Piece = tuple[bytes | None, bytes | None]

_GONE = (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError)
DISK_FULL = "no space left on device"
"""What tells, in lower case, that the disk of the engine's machine is full."""


def connect(timeout_s: int = PATIENCE_S) -> DockerClient:
    """Connect to the engine that DOCKER_HOST names, or the one at its usual place. Raises EngineError without one."""
    host = os.environ.get("DOCKER_HOST", "")
    tunnel = Tunnel(host) if host.startswith(SCHEME) else None
    try:
        client = _BehindSsh(tunnel, timeout_s) if tunnel else DockerClient.from_env(timeout=timeout_s)
        client.ping()
    except _GONE as error:
        _drop_frames(error)
        why = (tunnel.said if tunnel else "") or _line(error)
        if tunnel:
            tunnel.close()
        at = host or "its usual place (DOCKER_HOST is not set)"
        raise EngineError(f"no Docker engine answers at {at}: {why}") from error
    return client


class ClientAt(DockerClient):
    """A client of the engine at an address that DOCKER_HOST does not name."""

    def __init__(self, address: str, timeout_s: int) -> None:
        super().__init__(base_url=address, timeout=timeout_s)
        self.address = address


class _BehindSsh(ClientAt):
    def __init__(self, tunnel: Tunnel, timeout_s: int) -> None:
        super().__init__(f"unix://{tunnel.socket}", timeout_s)
        self._tunnel = tunnel

    def close(self) -> None:
        super().close()
        self._tunnel.close()


def address(client: DockerClient) -> str:
    """Return the DOCKER_HOST by which another program on this machine reaches the client's engine."""
    if isinstance(client, ClientAt):
        return client.address
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"  # as the SDK does, whatever the context is


def is_here(client: DockerClient) -> bool:
    """Return whether the engine is on this machine, judged by its address."""
    address = client.api.base_url
    here = any(place in address for place in ("//localhost", "//127.0.0.1", "//[::1]"))
    return here and not isinstance(client, _BehindSsh)


def _drop_frames(error: BaseException | None) -> None:
    """Clear the tracebacks: the SDK leaves open sockets in them, which would give a ResourceWarning later on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__


@contextmanager
def speaking(doing: str) -> Iterator[None]:
    """Turn what the SDK raises in this block into an error of ours: "could not <doing>: <what happened>".

    Raises MachineError where the engine's disk is full, otherwise EngineError.
    """
    try:
        yield
    except CasebookError:
        raise
    except _GONE as error:
        _drop_frames(error)
        raise _failure(f"could not {doing}", error) from error


@contextmanager
def only_if_present() -> Iterator[None]:
    """Ignore objects that are gone already, or are being removed."""
    try:
        yield
    except NotFound:
        pass
    except APIError as error:
        if "already in progress" not in _line(error):
            raise


def disk_is_full(error: Exception) -> bool:
    """Return whether the error says that the disk of the engine's machine is full."""
    return DISK_FULL in _line(error).lower()


def _failure(what: str, error: Exception) -> CasebookError:
    text = f"{what}: {_line(error)}"
    if disk_is_full(error):
        return MachineError(f"{text} (the disk of the Docker engine's machine is full)")
    return EngineError(text)


def _line(error: Exception) -> str:
    said = error.explanation if isinstance(error, APIError) else _root_cause(error)
    text = str(said or error)
    return " ".join(text.split()) or type(error).__name__


def _root_cause(error: BaseException) -> str | None:
    """Return what the operating system said: the SDK and its libraries wrap it several times."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__
    return None


def output_of(container: Container) -> Iterator[Piece]:
    """Yield pieces of stdout and stderr, of one of the two at a time, from now to the container's end.

    The connection is open when this returns, so that attaching before the start loses nothing.
    """
    stream: Any = container.attach(stream=True, demux=True, stdout=True, stderr=True, logs=False)
    return _closing(stream, stream._response)  # noqa: SLF001 what the SDK calls close leaves the descriptor open


def _closing(pieces: Iterable[Piece], response: requests.Response) -> Iterator[Piece]:
    with response:
        yield from pieces


def exec_stdout(container: Container, command: Sequence[str], *, user: str) -> str:
    """Run a program in a running container, and return its stdout. Raises APIError where nothing runs."""
    ended: Any = container.exec_run(list(command), user=user, demux=True)
    return (ended.output[0] or b"").decode("utf-8", "replace")


def version_of(client: DockerClient) -> str:
    """Return the engine and its version, such as "Docker 20.10.24" or "Podman 4.3.1"."""
    with speaking("ask the engine for its version"):
        found = client.version()
    name = "Podman" if any(part.get("Name") == "Podman Engine" for part in found.get("Components") or ()) else "Docker"
    return f"{name} {found['Version'].partition('+')[0]}"


def find_image(client: DockerClient, name: str) -> ImageFacts | None:
    """Return the image of this name or id as the engine has it, or None. `base` is left open."""
    with speaking(f"look for the image {name}"):
        try:
            image = client.images.get(name)
        except ImageNotFound:
            return None
    return ImageFacts(name=name, id=str(image.id), size_bytes=image.attrs["Size"], digest=digest_of(image.attrs))


def tags(summary: Mapping[str, Any]) -> list[str]:
    """Return the names of an image that the engine lists. Podman spells out where one without a registry is from."""
    return [tag.removeprefix("localhost/").removeprefix("docker.io/") for tag in summary["RepoTags"] or ()]


def tag(client: DockerClient, image: str, name: str) -> None:
    """Give the image of this id another name. Raises EngineError."""
    repository, _, version = name.rpartition(":")
    with speaking(f"name {name}"):
        client.api.tag(image, repository, version)


def digest_of(image: Mapping[str, Any]) -> str | None:
    """Return the digest by which a registry has an image that was pushed there or pulled; None without a certain one.

    Podman and newer Dockers have one also for what was only built here, under its own name.
    """
    names = (name.removeprefix("localhost/").removeprefix("docker.io/") for name in image.get("RepoDigests") or ())
    found = {name.partition("@")[2] for name in names if not name.startswith(f"{LABEL}/")}
    return found.pop() if len(found) == 1 else None


def names_elsewhere(client: DockerClient, name: str) -> list[str]:
    """Return the names in registries of the image of this name. They hold it as its own name does."""
    return [each for each in tags(client.images.get(name).attrs) if not each.startswith(f"{LABEL}/")]


def save(client: DockerClient, names: Sequence[str]) -> Iterator[bytes]:
    """Yield an archive of these images and their names, in pieces; shared layers are in it once. Raises EngineError."""
    with speaking(f"save {', '.join(names)}"):
        url = f"{client.api.base_url}/images/get"
        with client.api.get(url, params={"names": list(names)}, stream=True) as answer:
            if answer.status_code != requests.codes.ok:
                raise EngineError(f"could not save {', '.join(names)}: {' '.join(answer.text.split())}")
            yield from answer.iter_content(2**20)


def load(client: DockerClient, pieces: Iterable[bytes]) -> None:
    """Load what `save` gave. Raises EngineError, or MachineError where the disk is full."""
    with speaking("load the images"):
        answer: Iterable[dict[str, Any]] = client.api.load_image(iter(pieces))  # type: ignore[no-untyped-call]
        for chunk in answer:
            if "error" in chunk:
                text = f"could not load the images: {' '.join(str(chunk['error']).split())}"
                raise MachineError(text) if DISK_FULL in text.lower() else EngineError(text)


def registry_digest(client: DockerClient, name: str) -> str:
    """Ask the engine which digest the registry has under this name: "sha256:...". Raises EngineError."""
    with speaking(f"ask the registry for {name}"):
        found = cast("dict[str, Any]", client.api.inspect_distribution(name))  # type: ignore[no-untyped-call]
    return str(found["Descriptor"]["digest"])


def pull(client: DockerClient, name: str, note: Note) -> ImageFacts:
    """Fetch an image from its registry. Raises BuildError, or MachineError where the disk is full."""
    note(f"pulling {name}")
    try:
        client.images.pull(name, tag=None if ":" in name.rpartition("/")[2] or "@" in name else "latest")
    except _GONE as error:
        what = f"the image {name} is not on the engine and could not be pulled"
        if isinstance(error, APIError) and not disk_is_full(error):
            raise BuildError(f"{what}: {_line(error)}") from error
        raise _failure(what, error) from error
    found = find_image(client, name)
    if found is None:
        raise BuildError(f"the image {name} was pulled and is not there")
    return found
