"""A Docker engine behind ssh://, through this system's own ssh client: its keys, agent, known hosts and configuration.

Each connection to a socket of ours becomes one `docker system dial-stdio` over there, which is how Docker's own command
line does it. The Docker SDK has such a transport too, but needs a library for it (paramiko), and its sockets know no
time limit.
"""

import atexit
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from failure_signature.text import one_line
from gpu_casebook.errors import EngineError

SCHEME = "ssh://"
CONNECT_S = 20
_KEPT_S = 60
"""How long ssh keeps a connection that nobody uses: the next trial need not wait for another one."""
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")


class Tunnel:
    """A socket of this machine that leads to `address`, which is ssh://[USER@]HOST[:PORT][/PATH/OF/SOCKET].

    Open until `close`, or the end of this process. Raises EngineError for an address that is none, and where this
    system has no ssh.
    """

    def __init__(self, address: str) -> None:
        command = ssh_command(address)
        if shutil.which("ssh") is None:
            raise EngineError(f"no Docker engine answers at {address}: there is no ssh on this machine; install it")
        self._directory = Path(tempfile.mkdtemp(prefix="casebook-ssh-"))
        self.socket = self._directory / "s"
        self._log = self._directory / "log"
        self._control = self._directory / "m"
        shared = [f"-oControlPath={self._control}", "-oControlMaster=auto", f"-oControlPersist={_KEPT_S}"]
        self._connect = [command[0], *shared, *command[1:]]
        self._leave = [command[0], *shared, "-Oexit", *command[1:-1]]
        self._running: list[subprocess.Popen[bytes]] = []
        self._server = socket.socket(socket.AF_UNIX)
        atexit.register(self.close)
        try:
            self._server.bind(str(self.socket))
            self._server.listen()
        except OSError as error:
            self.close()
            where = self._directory
            raise EngineError(f"no socket can be made in {where}: {error}; set TMPDIR to a shorter path") from error
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def said(self) -> str:
        """What ssh, or Docker over there, said last: why it does not work."""
        with suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return one_line(lines[-1]) if lines else ""
        return ""

    def _serve(self) -> None:
        with suppress(OSError):  # the socket was closed
            while True:
                connection, _ = self._server.accept()
                self._running = [process for process in self._running if process.poll() is None]
                with connection, self._log.open("ab") as log:
                    ends = connection.fileno()
                    # In a session of its own: after Ctrl-C the engine is still to be told to end what runs.
                    process = subprocess.Popen(
                        self._connect, stdin=ends, stdout=ends, stderr=log, start_new_session=True
                    )
                self._running.append(process)

    def close(self) -> None:
        """End every connection and leave nothing behind. A tunnel that is closed already stays so."""
        atexit.unregister(self.close)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()
        if self._control.exists():
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    self._leave, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=CONNECT_S
                )
        shutil.rmtree(self._directory, ignore_errors=True)


def ssh_command(address: str) -> list[str]:
    """Return what is run for each connection; its last word is the command over there. Raises EngineError."""
    refusal = EngineError(f"DOCKER_HOST={address}: write ssh://[USER@]HOST[:PORT], without a password")
    try:
        parts = urlsplit(address)
        host, user, port = parts.hostname or "", parts.username, parts.port
    except ValueError:
        raise refusal from None
    names = [name for name in (host, user) if name is not None]
    if not all(map(_HOST.fullmatch, names)) or parts.password is not None or parts.query or parts.fragment:
        raise refusal
    there = ["docker", *(["--host", f"unix://{parts.path}"] if parts.path.strip("/") else []), "system", "dial-stdio"]
    options = ["-T", "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_S}", "-oServerAliveInterval=15"]
    options += [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    return ["ssh", *options, "--", host, shlex.join(there)]
