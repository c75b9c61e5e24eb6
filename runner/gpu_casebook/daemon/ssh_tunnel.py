"""A Docker engine behind ssh://, through this system's own ssh client: its keys, agent, known hosts and configuration.

Each connection to a socket of ours becomes one `docker system dial-stdio` over there, which is how Docker's own command
line does it. The Docker SDK has such a transport too, but needs a library for it (paramiko), and its sockets know no
time limit.
"""

import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from gpu_casebook.errors import EngineError
from gpu_casebook.text import one_line

SCHEME = "ssh://"
CONNECT_S = 20
_KEPT_S = 60
"""How long ssh keeps a connection that nobody uses: the next trial need not wait for another one."""
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")


class Tunnel:
    """Open until `close`, or the end of this process. `address` is ssh://[USER@]HOST[:PORT][/PATH/OF/SOCKET].

    Raises EngineError for an address that is none, and where this system has no ssh.
    """

    def __init__(self, address: str) -> None:
        command = ssh_command(address)
        if shutil.which("ssh") is None:
            raise EngineError(f"no Docker engine answers at {address}: there is no ssh on this machine; install it")
        self._place = Path(tempfile.mkdtemp(prefix="casebook-ssh-"))
        self.socket = self._place / "s"
        self._log = self._place / "log"
        shared = [f"-oControlPath={self._place / 'm'}", "-oControlMaster=auto", f"-oControlPersist={_KEPT_S}"]
        ssh = [command[0], *shared, *command[1:]]
        server = _listening(self.socket)
        forward = _Forward(server, ssh, self._log)
        threading.Thread(target=forward.serve, daemon=True).start()
        leave = [command[0], *shared, "-Oexit", *command[1:-1]]
        self.close = weakref.finalize(self, _close, server, forward, leave, self._place)

    @property
    def said(self) -> str:
        """What ssh, or Docker over there, said last: why it does not work."""
        with suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return one_line(lines[-1]) if lines else ""
        return ""


def ssh_command(address: str) -> list[str]:
    """What is run for each connection, with the command over there as its last word. Raises EngineError."""
    try:
        parts = urlsplit(address)
        host, user, port = parts.hostname or "", parts.username, parts.port
    except ValueError:
        raise _no_address(address) from None
    names = [name for name in (host, user) if name is not None]
    if not all(map(_HOST.fullmatch, names)) or parts.password is not None or parts.query or parts.fragment:
        raise _no_address(address)
    there = ["docker", *(["--host", f"unix://{parts.path}"] if parts.path.strip("/") else []), "system", "dial-stdio"]
    options = ["-T", "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}", "-oServerAliveInterval=15"]
    options += [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    return ["ssh", *options, "--", host, shlex.join(there)]


def _no_address(address: str) -> EngineError:
    return EngineError(f"DOCKER_HOST={address}: write ssh://[USER@]HOST[:PORT], without a password")


def _listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(path))
        server.listen()
    except OSError as error:
        server.close()
        shutil.rmtree(path.parent, ignore_errors=True)
        raise EngineError(f"no socket can be made in {path.parent}: {error}; set TMPDIR to a shorter path") from error
    return server


class _Forward:
    def __init__(self, server: socket.socket, command: Sequence[str], log: Path) -> None:
        self._server, self._command, self._log = server, command, log
        self._running: list[subprocess.Popen[bytes]] = []

    def serve(self) -> None:
        with suppress(OSError):  # the socket was closed
            while True:
                connection, _ = self._server.accept()
                self._running = [process for process in self._running if process.poll() is None]
                with connection, self._log.open("ab") as log:
                    self._running.append(self._connected(connection.fileno(), log))

    def _connected(self, ends: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """In a session of its own: after Ctrl-C the engine is still to be told to end what runs."""
        return subprocess.Popen(self._command, stdin=ends, stdout=ends, stderr=log, start_new_session=True)

    def end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()


def _close(server: socket.socket, forward: _Forward, leave: Sequence[str], place: Path) -> None:
    with suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()
    forward.end()
    if (place / "m").exists():
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(leave, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=CONNECT_S)
    shutil.rmtree(place, ignore_errors=True)
