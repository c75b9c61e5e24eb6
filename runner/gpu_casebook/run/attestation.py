"""What is really installed, as guest/attest.py printed it, against what the lock says. Pure."""

from collections.abc import Iterator

from packaging.utils import canonicalize_name
from pydantic import ValidationError

from gpu_casebook.errors import EngineError
from gpu_casebook.evidence import Attestation
from gpu_casebook.packages.lock import Pin, read_lock, same_version


def attestation(stdout: str) -> Attestation:
    """What attest.py printed, whatever else an image's start-up printed around it. Raises EngineError."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return Attestation.model_validate_json(line)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise EngineError(
                    f"the environment can't be inspected: what it tells of itself is broken: {why}"
                ) from None
    raise EngineError("the environment can't be inspected: it told nothing of itself")


def drift(lock_text: str, python: str, attestation: Attestation) -> list[str]:
    """Each difference of what is there from what is locked, one line each. Empty means exact."""
    found: dict[str, str] = {canonicalize_name(name): version for name, version in attestation.packages.items()}
    lines = (
        []
        if attestation.python.startswith(f"{python}.")
        else [f"Python: {python} declared, {attestation.python} found"]
    )
    return lines + [
        line for locked in read_lock(lock_text).pins for line in _difference(locked, found.get(locked.name))
    ]


def _difference(locked: Pin, found: str | None) -> Iterator[str]:
    if found is None:
        yield f"{locked.name}: {locked.version} locked, none found"
    elif not same_version(locked.version, found):
        build = ", another build of it" if same_version(locked.version, found.split("+")[0]) else ""
        yield f"{locked.name}: {locked.version} locked, {found} found{build}"
