"""Builds by BuildKit, through the docker command, or by Podman's own builder, through the podman command.

The Docker SDK drives only Docker's classic builder. The command talks to the same engine as the client, also behind
ssh://, and to its own builder: no other one has the images that a Dockerfile of ours begins from.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from failure_signature.text import plain
from gpu_casebook.daemon.client import DISK_FULL, DockerClient, address, speaking
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.errors import BuildError, MachineError
from gpu_casebook.packages.settings import BuildSettings

_FAILED_STEP = re.compile(r".*(?:executor failed running|process) .*exit code: (\d+)")
_FAILED_IN_PODMAN = re.compile(r"(?s)Error: .*while running runtime: exit status (\d+)")


def program() -> str:
    """Return the first docker on the PATH that can build with BuildKit. Raises MachineError if there is none.

    Before version 23 docker does it by itself; newer ones need the plugin buildx.
    """
    for directory in os.get_exec_path():
        path = shutil.which("docker", path=directory)
        if path and "--secret" in _build_help(path):
            return path
    raise MachineError(
        "no docker command on the PATH can build with BuildKit, and images need it: install docker-buildx-plugin "
        "(apt-get install docker-buildx where docker.io is Debian's or Ubuntu's)"
    )


def _build_help(path: str) -> str:
    command = [path, "build", "--help"]
    # Without the address docker would ask the engine first which options it has, behind ssh after seconds.
    environ = {**os.environ, "DOCKER_BUILDKIT": "1", "DOCKER_HOST": "unix:///nowhere"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stdout


@dataclass(frozen=True)
class _Builder:
    """A command that builds, without the options that both have."""

    command: Sequence[str]
    environ: Mapping[str, str]
    context: str
    stdin: IO[bytes] | None


@contextmanager
def _builder(client: DockerClient, context: IO[bytes], dockerfile: str, script: str) -> Iterator[_Builder]:
    """Make the context and the secret `settings`, which is `script`, ready for the command of the client's engine."""
    if not isinstance(client, PodmanClient):
        # `default` is the builder inside the engine; an attestation would make an image a list of two.
        buildx = {"BUILDX_BUILDER": "default", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
        engine = {"DOCKER_HOST": address(client), "DOCKER_BUILDKIT": "1", **buildx, "CASEBOOK_SETTINGS": script}
        command = [program(), "build", "--progress=plain", f"--file={dockerfile}"]
        command += ["--secret=id=settings,env=CASEBOOK_SETTINGS"]
        yield _Builder(command, engine, context="-", stdin=context)
        return
    podman = shutil.which("podman")
    if podman is None:
        raise MachineError("no podman command is on the PATH, and images are built with it: apt-get install podman")
    with tempfile.TemporaryDirectory() as directory:  # which this user alone can read
        unpacked, settings = Path(directory, "context"), Path(directory, "settings")
        with tarfile.open(fileobj=context) as archive:  # the command takes none
            archive.extractall(unpacked, filter="data")
        settings.write_text(script, encoding="utf-8")  # of a variable Podman 4.3 makes an empty secret
        command = [podman, "--remote", "--url", address(client), "build", f"--file={unpacked / dockerfile}"]
        command += [f"--secret=id=settings,src={settings}"]
        yield _Builder(command, {}, context=str(unpacked), stdin=None)


def build(
    client: DockerClient,
    context: IO[bytes],
    *,
    dockerfile: str,
    tag: str,
    labels: Mapping[str, str],
    arguments: Mapping[str, str],
    settings: BuildSettings,
    network: str = "host",
) -> Generator[str, None, None]:
    """Build the tar archive `context`, a file, and yield the builder's output line by line. Closing it ends the build.

    Raises BuildError with the builder's last line, EngineError, or MachineError if the disk is full or no command here
    can build.
    """
    # The host's network is the one that every engine has, and the one by which a proxy on this machine is reached.
    common = [f"--network={network}", f"--tag={tag}"]
    common += [f"--label={name}={value}" for name, value in labels.items()]
    common += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    # Values that may hold a password are not arguments, which every user of this machine sees, but variables.
    common += [f"--build-arg={name}" for name in settings.proxies]
    if settings.certificates:
        common += [f"--secret=id=ca.pem,src={settings.certificates}"]
    with _builder(client, context, dockerfile, settings.script) as builder:
        process = subprocess.Popen(
            [*builder.command, *common, builder.context],
            env={**os.environ, **settings.proxies, **builder.environ},
            stdin=builder.stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        last, full = "it said nothing", False
        with process:
            try:
                for line in process.stdout or ():
                    if line.strip():
                        last = plain(line.rstrip())
                        full = full or DISK_FULL in last.lower()
                        yield last
            except BaseException:
                # The engine ends a build whose client is gone. Asked to end, docker 20.10 mostly lets it go on.
                process.kill()
                raise
    if process.returncode:
        text = f"could not build {tag}: {_plainly(last)}"
        if full:
            raise MachineError(f"{text} (the disk of the engine's machine is full)")
        with speaking(f"build {tag}"):
            client.ping()  # an engine that is gone is no failure of the build
        raise BuildError(text)


def _plainly(last: str) -> str:
    said = _FAILED_IN_PODMAN.sub(r"a command ended with exit status \1", last)
    return _FAILED_STEP.sub(r"a command ended with exit status \1", said)
