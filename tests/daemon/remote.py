"""A Docker engine behind ssh, for tests: a daemon and an ssh server of their own on this machine, and a client."""

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.engines.test_docker import clear_up_after

PATIENCE_S = 60.0


def missing() -> str | None:
    """Why there can be none here."""
    needed = {"dockerd": "docker.io", "docker": "docker.io", "ssh-keygen": "openssh-client", "sshd": "openssh-server"}
    gone = [f"{name} ({package})" for name, package in needed.items() if not _which(name)]
    return f"starts an engine behind ssh of its own, and there is no {', '.join(gone)}" if gone else None


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextmanager
def daemon() -> Iterator[str]:
    """Its address. Its storage is what Docker finds best here: the images are not small."""
    top = Path(tempfile.mkdtemp(prefix="casebook-", dir="/tmp"))  # sockets want short names
    address = f"unix://{top}/docker.sock"
    options = ["--bridge=none", "--iptables=false", "--ip6tables=false", "-H", address]
    options += [f"--{name}={top / name}" for name in ("data-root", "exec-root", "pidfile")]
    with (top / "log").open("wb") as log:
        process = subprocess.Popen([str(_which("dockerd")), *options], stdout=log, stderr=log)
    try:
        _until(lambda: _answers(address), process, top / "log")
        yield address
    finally:
        process.terminate()
        process.wait()
        clear_up_after(top)
        shutil.rmtree(top, ignore_errors=True)


def _answers(address: str) -> bool:
    command = ["docker", "--host", address, "version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _until(true: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text()[-2000:])
        time.sleep(0.1)


@dataclass(frozen=True)
class SshServer:
    """`variables` are for a client's environment: its `ssh` has a key that this server takes."""

    process: "subprocess.Popen[bytes]"
    address: str
    variables: Mapping[str, str]
    place: Path

    def hang_up(self) -> None:
        """End every connection there is, as a network that is gone would."""
        _hang_up(self.process)

    def take_key_away(self) -> None:
        (self.place / "authorized").write_text("")


@contextmanager
def ssh_server(docker_host: str) -> Iterator[SshServer]:
    """In whose sessions DOCKER_HOST has this value."""
    place = Path(tempfile.mkdtemp(prefix="casebook-sshd-"))
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    shutil.copy(place / "key.pub", place / "authorized")
    port = _free_port()
    (place / "sshd_config").write_text(_server_settings(place, port, docker_host))
    _own_ssh(place)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it, and a system that boots makes it
    server = subprocess.Popen([str(_which("sshd")), "-D", "-f", str(place / "sshd_config"), "-E", str(place / "log")])
    try:
        _until(lambda: _listens(port), server, place / "log")
        variables = os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
        yield SshServer(server, f"ssh://{getpass.getuser()}@127.0.0.1:{port}", variables, place)
    finally:
        _hang_up(server)
        server.terminate()
        server.wait()
        shutil.rmtree(place)


def _hang_up(server: "subprocess.Popen[bytes]") -> None:
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(server.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _server_settings(place: Path, port: int, docker_host: str) -> str:
    return f"""\
Port {port}
ListenAddress 127.0.0.1
HostKey {place}/host
PidFile none
AuthorizedKeysFile {place}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv DOCKER_HOST={docker_host}
"""


def _own_ssh(place: Path) -> None:
    """The system's ssh with settings of the test's: it looks for a user's where the user database says home is."""
    (place / "config").write_text(
        f"IdentityFile {place}/key\nIdentitiesOnly yes\nUserKnownHostsFile {place}/known\n"
        "StrictHostKeyChecking accept-new\n"
    )
    (place / "bin").mkdir()
    (place / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {place}/config "$@"\n')
    (place / "bin" / "ssh").chmod(0o755)


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False
