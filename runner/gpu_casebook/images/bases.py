"""What images stand on: Debian, pinned by digest in images/bases.toml, or bootstrapped from Debian's packages.

An image that is already on the engine is used; otherwise the pinned one is pulled; where no registry answers, the same
Debian is bootstrapped with mmdebstrap on this machine and imported.
"""

import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpu_casebook.daemon.client import LABEL, DockerClient, find_image, pull, speaking, tags
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.daemon.registry import ask
from gpu_casebook.errors import BuildError, CasebookError, EngineError, MachineError, UsageError
from gpu_casebook.trial import Note

__all__ = ["BOOTSTRAPPED", "Base", "BasePin", "available", "bootstrapped", "obtain", "read_pin", "refresh"]

BOOTSTRAPPED = "bootstrapped from Debian's packages"
_REPOSITORY = f"{LABEL}/base"
_LEFT_OUT = (
    "exclude=/usr/share/man/*",
    "exclude=/usr/share/locale/*",
    "exclude=/usr/share/doc/*",
    "include=/usr/share/doc/*/copyright",
)
"""What Debian's own slim images leave out. It holds for packages installed later too."""


@dataclass(frozen=True)
class BasePin:
    """The base that images/bases.toml pins."""

    image: str
    digest: str
    suite: str

    @property
    def reference(self) -> str:
        return f"{self.image}@{self.digest}"


@dataclass(frozen=True)
class Base:
    """An image that ours stand on."""

    reference: str  # what a Dockerfile names
    identity: str  # what it is, in evidence and content keys


def read_pin(images: Path) -> BasePin:
    """Read bases.toml in the directory `images`. Raises UsageError if it is missing or malformed."""
    path = images / "bases.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))["debian"]
        pin = BasePin(image=table["image"], digest=table["digest"], suite=table["suite"])
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: no usable [debian] with image, digest and suite: {error}") from error
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", pin.digest):
        raise UsageError(f"{path}: {pin.digest!r} is not a digest; write sha256: and 64 hexadecimal digits")
    return pin


def obtain(client: DockerClient, pin: BasePin, note: Note) -> Base:
    """Return a base after putting it on the engine. Raises BuildError, EngineError or MachineError."""
    return available(client, pin) or _pulled(client, pin, note) or _bootstrap(client, pin, note)


def available(client: DockerClient, pin: BasePin) -> Base | None:
    """Return the base that is on the engine already: the pinned one, or else the youngest bootstrapped one."""
    if find_image(client, pin.reference):
        return Base(pin.reference, pin.reference)
    made = bootstrapped(client)
    return made[0] if made else None


def bootstrapped(client: DockerClient) -> list[Base]:
    """Return the bootstrapped bases on the engine, youngest first."""
    with speaking("list the base images"):
        images = client.api.images(filters={"label": f"{LABEL}.part=base"})
    images.sort(key=lambda image: image["Created"], reverse=True)
    names = [(name, image["Id"]) for image in images for name in tags(image)]
    return [Base(name, _identity(id_)) for name, id_ in names if name.startswith(f"{_REPOSITORY}:")]


def _identity(id_: str) -> str:
    return f"{BOOTSTRAPPED}, {id_.removeprefix('sha256:')[:12]}"


def _pulled(client: DockerClient, pin: BasePin, note: Note) -> Base | None:
    """Pull the pinned base. Returns None if no registry has it; the reason goes to `note`."""
    try:
        if not isinstance(client, PodmanClient):  # which has no answer to that, and is impatient itself
            ask(pin.reference)
        pull(client, pin.reference, note)
    except MachineError:
        raise
    except CasebookError as error:
        note(f"{error}; bootstrapping Debian instead")
        return None
    return Base(pin.reference, pin.reference)


def _bootstrap(client: DockerClient, pin: BasePin, note: Note) -> Base:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise MachineError(
            f"{pin.image} could not be pulled, and mmdebstrap, which makes it from Debian's packages, is not "
            "installed: apt-get install mmdebstrap"
        )
    note(f"bootstrapping Debian {pin.suite} from its packages")
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        _mmdebstrap(program, pin.suite, archive)
        return _import(client, pin.suite, archive.name)


def _mmdebstrap(program: str, suite: str, archive: IO[bytes]) -> None:
    """Into a file first: a bootstrap that breaks off must not become an image."""
    left_out = [f"--dpkgopt=path-{option}" for option in _LEFT_OUT]
    command = [program, "--variant=minbase", "--format=tar", *left_out, suite, "-"]
    done = subprocess.run(command, stdout=archive, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").splitlines()[-5:]
        raise BuildError("\n  ".join([f"Debian {suite} could not be bootstrapped; mmdebstrap's last lines:", *last]))


def _import(client: DockerClient, suite: str, archive: str) -> Base:
    changes = [f"LABEL {LABEL}.part=base", 'CMD ["bash"]']
    with speaking("import the bootstrapped base"):
        answer = client.api.import_image_from_file(archive, changes=changes)
        id_ = str(json.loads(answer.splitlines()[-1])["status"])
        tag = f"{suite}-{id_.removeprefix('sha256:')[:12]}"
        client.api.tag(id_, _REPOSITORY, tag)
    return Base(f"{_REPOSITORY}:{tag}", _identity(id_))


def refresh(images: Path, note: Note) -> BasePin:
    """Pin in images/bases.toml what the registry has today. Raises EngineError where no registry answers."""
    old = read_pin(images)
    digest = ask(old.image)
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise EngineError(f"the registry's answer for {old.image} is not a digest: {digest!r}")
    path = images / "bases.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(old.digest, digest), encoding="utf-8")
    note(f"{old.image} is still {digest}" if digest == old.digest else f"{old.image}: {old.digest} -> {digest}")
    return read_pin(images)
