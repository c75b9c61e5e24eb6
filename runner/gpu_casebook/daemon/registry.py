"""Pushing to a registry and pulling from it, by the engine; where it wants a password, `docker login` left it here."""

import json
import re

from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon.client import DockerClient, connect, find_image, registry_digest, speaking
from gpu_casebook.daemon.podman import PodmanClient
from gpu_casebook.errors import BuildError, EngineError, MachineError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.trial import Note

_PATIENCE_S = 15
"""How long a registry may take to answer at all."""
SILENCE_S = 3600
"""How long Podman may say nothing while it sends or takes in gigabytes."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DENIED = re.compile(r"denied|unauthorized|authentication required|no basic auth", re.IGNORECASE)
_ABSENT = re.compile(r"manifest unknown|name unknown|repository name not known", re.IGNORECASE)


def ask(name: str) -> str:
    """Return the digest that the registry has under this name, by Docker. Raises EngineError.

    The engine itself may wait for minutes: a connection with a timeout of our own bounds that.
    """
    impatient = connect(_PATIENCE_S)
    try:
        return registry_digest(impatient, name)
    finally:
        impatient.close()


def push(client: DockerClient, name: str) -> str:
    """Push the image of this name; return the digest that the registry has it by. Raises EngineError."""
    repository, _, tag = name.rpartition(":")
    found, failed = None, None
    with speaking(f"push {name}"):
        if isinstance(client, PodmanClient):
            client.api.params = _how(name)
        for line in client.api.push(repository, tag, stream=True, decode=True):
            found = _DIGEST.search(line.get("status", "")) or found
            failed = line.get("error", failed)
    if failed or not found:
        raise _explained(f"could not push {name}: {failed or 'the engine tells no digest of it'}", name)
    return found[0]


def pull(client: DockerClient, name: str, note: Note) -> ImageFacts:
    """Pull the image of this name. Raises EngineError, or MachineError where the disk is full."""
    try:
        if isinstance(client, PodmanClient):
            _pull_by_podman(client, name, note)
        else:
            ask(name)
            daemon.pull(client, name, note)
    except MachineError:
        raise
    except (EngineError, BuildError) as error:
        raise _explained(str(error), name) from error
    found = find_image(client, name)
    if found is None:
        raise EngineError(f"the image {name} was pulled and is not there")
    return found


def _pull_by_podman(client: PodmanClient, name: str, note: Note) -> None:
    """By Podman's own interface: that of Docker knows no registry without TLS."""
    note(f"pulling {name}")
    url = f"{client.api.base_url}/v4.0.0/libpod/images/pull"
    with speaking(f"pull {name}"):
        with client.api.post(url, params={"reference": name, **_how(name)}, timeout=SILENCE_S) as answer:
            lines = [json.loads(line) for line in answer.text.splitlines() if line.startswith("{")]
        said = next((str(line["error"]) for line in lines if "error" in line), None)
        if said is None and not answer.ok:
            said = answer.text
    if said is not None:
        text = f"could not pull {name}: {' '.join(said.split())}"
        raise MachineError(text) if daemon.DISK_FULL in text.lower() else EngineError(text)


def _how(name: str) -> dict[str, str]:
    """Return what to tell Podman: Docker itself does without TLS on the loopback device."""
    return {"tlsVerify": "false"} if re.match(r"(localhost|127\.[0-9.]+|\[::1\])[:/]", name) else {}


def _explained(text: str, name: str) -> EngineError:
    text, host = " ".join(text.split()), name.partition("/")[0]
    if _DENIED.search(text):
        return EngineError(f"{host} gives no permission for {name}: log in there (docker login {host}, podman login)")
    return EngineError(f"{name} is not in the registry" if _ABSENT.search(text) else text)
