"""The engines under test, and what can be seen of them from outside."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import psutil

from casebook_rootless.charliecloud import CharliecloudEngine
from failure_signature.result import TrialResult
from gpu_casebook.daemon.client import LABEL, Container, DockerClient
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.engines.docker.engine import DockerEngine
from gpu_casebook.engines.owner import Owner
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.trial import Limits, Recipe, TrialRequest

ROOT = Path(__file__).parents[2]
TOKEN = "CASEBOOK_TEST_TOKEN"
PATIENCE_S = 60.0

# Tells the runner through its supervisor's descriptors that it ended well, and kills it.
FORGER = """
import ctypes, json, os, signal, time
answer = json.dumps({"duration_s": 1.0, "ended_for": None, "status": 0}).encode()
parent = os.getppid()
pidfd = os.pidfd_open(parent)
for number in range(20):
    try:
        os.write(os.open(f"/proc/{parent}/fd/{number}", os.O_WRONLY), answer)
    except OSError:
        pass
    stolen = ctypes.CDLL(None).syscall(438, pidfd, number, 0)  # pidfd_getfd
    if stolen > 0:
        os.write(stolen, answer)
print("sent", flush=True)
os.kill(parent, signal.SIGKILL)
time.sleep(60)
"""

FAMILY = """
import os, signal, time
for _ in range(2):
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork():
            os._exit(0)
        time.sleep(600)
    os.waitpid(child, 0)
for _ in range(2):
    if os.fork() == 0:
        time.sleep(600)
print("started", flush=True)
time.sleep(600)
"""
PROCESSES = 5
"""The script, two orphans in sessions of their own, two children. There were never as many before all are there."""


class Subject(Protocol):
    """One engine, with eyes on what it leaves behind."""

    recipe: Recipe

    def make(self) -> Engine: ...

    def left_by(self, pid: int) -> list[str]:
        """Everything on this machine or engine that belongs to the runner with this pid."""

    def take_away(self, kept: str) -> bytes:
        """Remove what `TrialResult.kept` speaks of; the script that was in it."""

    def processes(self, token: str) -> int:
        """How many processes run in trials whose variable TOKEN is `token`."""


@dataclass
class DockerSubject:
    client: DockerClient
    recipe: Recipe
    kind: type[DockerEngine] = DockerEngine
    variables: Mapping[str, str] = field(default_factory=dict)  # where its engine is

    def make(self) -> DockerEngine:
        with mock.patch.dict(os.environ, self.variables):
            return self.kind.connect(ROOT)

    def left_by(self, pid: int) -> list[str]:
        ours: dict[str, Any] = {"label": f"{LABEL}.owner"}
        objects = [
            *self.client.api.containers(all=True, filters=ours),
            *self.client.api.volumes(filters=ours)["Volumes"],
        ]
        owners = [(one, Owner.parse(one["Labels"][f"{LABEL}.owner"])) for one in objects]
        return [str(one.get("Names") or one.get("Name")) for one, owner in owners if owner and owner.pid == pid]

    def take_away(self, kept: str) -> bytes:
        container = self.client.containers.get(kept.split()[1])
        archive = b"".join(container.get_archive("/case/script.py")[0])
        volumes = [mount["Name"] for mount in container.attrs["Mounts"]]
        container.remove()
        for volume in volumes:
            self.client.volumes.get(volume).remove()
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            file = opened.extractfile("script.py")
            return file.read() if file else b""

    def processes(self, token: str) -> int:
        running = self.client.containers.list(filters={"label": f"{LABEL}.run"}, ignore_removed=True)
        mine = [one for one in running if f"{TOKEN}={token}" in one.attrs["Config"]["Env"]]
        return sum(len(self._top(one)) - 1 for one in mine)  # less the init process

    def _top(self, container: Container) -> list[Any]:
        """Podman has an answer of its own to it; the one that Docker gives needs a ps in the image.

        Of a container that is just ending, the answer is an error or lists nothing ("Processes": null).
        """
        api = self.client.api
        own = "/v4.0.0/libpod" if self.variables else ""
        answer = api.get(f"{api.base_url}{own}/containers/{container.id}/top", params={"stream": "false"})
        processes = answer.json()["Processes"] if answer.ok else None
        return list(processes or [None])


@dataclass
class VenvSubject:
    cache: Path
    place: Path
    recipe: Recipe

    def make(self) -> Engine:
        return VenvEngine(cache=self.cache, place=self.place)

    def left_by(self, pid: int) -> list[str]:
        marks = self.place.glob("*.owner")
        owned = [mark.stem for mark in marks if (owner := Owner.parse(mark.read_text())) and owner.pid == pid]
        unowned = [path.name for path in self.place.iterdir() if not path.with_suffix(".owner").exists()]
        return [*owned, *unowned]

    def take_away(self, kept: str) -> bytes:
        script = (Path(kept) / "case" / "script.py").read_bytes()
        shutil.rmtree(kept)
        return script

    def processes(self, token: str) -> int:
        count = 0
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                count += process.environ().get(TOKEN) == token
        return count


@dataclass
class CharliecloudSubject(VenvSubject):
    def make(self) -> CharliecloudEngine:
        return CharliecloudEngine(ROOT, store=self.cache, place=self.place)


def this_python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


@dataclass
class Bench:
    """An engine that is ready for trials."""

    engine: Engine
    prepared: Prepared

    def run(self, script: str, *arguments: str, **options: Any) -> TrialResult:
        files = {"script.py": script.encode(), **options.pop("files", {})}
        limits = Limits(**{"timeout_s": PATIENCE_S, **options.pop("limits", {})})
        return self.engine.run(
            self.prepared, TrialRequest(files=files, arguments=["script.py", *arguments], limits=limits, **options)
        )


def eventually(true: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@contextmanager
def runner_with_a_trial(subject: Subject, token: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another runner, once its trial and all processes of it are running."""
    environ = dict(os.environ)
    match subject:
        case DockerSubject():
            environ |= subject.variables
            arguments = [subject.kind.name, token, str(subject.recipe.use_image)]
        case CharliecloudSubject():
            arguments = ["charliecloud", token, str(subject.recipe.use_image), str(subject.cache), str(subject.place)]
        case VenvSubject():
            arguments = ["venv", token, str(subject.cache), str(subject.place)]
        case _:
            raise AssertionError(subject)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.runner_process", *arguments],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
    )
    with process:
        try:
            eventually(lambda: subject.processes(token) == PROCESSES or process.poll() is not None)
            assert process.poll() is None
            yield process
        finally:
            process.kill()
