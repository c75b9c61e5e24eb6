"""One connection to Podman's service, which speaks the Docker API for most of what is asked of it.

Tried with Podman 4.3.1, run by root and by a user. It answers at CONTAINER_HOST, or where systemd puts podman.socket.
"""

import os
from pathlib import Path

from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon.client import PATIENCE_S, ClientAt, DockerClient
from gpu_casebook.errors import EngineError


class PodmanClient(ClientAt):
    """Podman's service, by the Docker SDK."""


def connect(timeout_s: int = PATIENCE_S) -> PodmanClient:
    """Connect to the service. Raises EngineError where no Podman answers."""
    address = os.environ.get("CONTAINER_HOST") or f"unix://{_usual_place()}"
    if not address.startswith(("unix://", "tcp://")):
        raise EngineError(f"CONTAINER_HOST={address}: Podman is reached by unix:// or tcp:// here")
    with daemon.speaking(
        f"reach Podman at {address} (systemctl start podman.socket, with --user where it runs without root)"
    ):
        client = PodmanClient(address, timeout_s)
        client.ping()
    return client


def connect_any(timeout_s: int = PATIENCE_S) -> DockerClient:
    """Connect to Docker, or to Podman where no Docker answers. Raises EngineError where neither does."""
    try:
        return daemon.connect(timeout_s)
    except EngineError as error:
        try:
            return connect(timeout_s)
        except EngineError as other:
            raise EngineError(f"{error}; {other}") from None


def _usual_place() -> Path:
    """Return the socket of a service that this user runs, or else of root's."""
    own = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}"), "podman", "podman.sock")
    return own if os.getuid() and own.exists() else Path("/run/podman/podman.sock")
