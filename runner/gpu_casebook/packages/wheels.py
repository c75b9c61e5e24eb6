"""Wheels for a host without a network: those of the runner itself, and those of a case's lock."""

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages import uv
from gpu_casebook.packages.lock import WHEEL_PLATFORMS
from gpu_casebook.packages.resolve import addressed
from gpu_casebook.packages.settings import for_pip
from gpu_casebook.trial import Note


def runner_pins(roots: Iterable[str], python: str) -> list[str]:
    """Return name==version of what the runner needs with that Python, at the versions that it runs with here."""
    # Markers are asked about the host's Python, on Linux as here.
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    pins: dict[str, str] = {}
    left = [Requirement(root) for root in roots]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in pins or (wanted.marker and not wanted.marker.evaluate(environment)):
            continue
        try:
            pins[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            why = "is not installed here, and the runner needs it there; install it and pack again"
            raise UsageError(f"{name} {why}") from None
        left += [Requirement(text) for text in metadata.requires(name) or ()]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def name_of(requirement: str) -> str:
    """Return the name of the required package in canonical form."""
    return canonicalize_name(Requirement(requirement).name)


def download_pins(pins: Sequence[str], python: str, into: Path, note: Note) -> list[Path]:
    """Download the wheels of these pins. Raises BuildError."""
    note(f"fetching {len(pins)} wheels of the runner for Python {python}")
    return _download([*pins], python, into, "the runner's packages")


def download_lock(lock: Path, python: str, into: Path, note: Note) -> list[Path]:
    """Download the wheels of a lock, a file to be written to, each checked against its hash. Raises BuildError."""
    note(f"fetching the wheels of {lock.name}")
    lock.write_text(addressed(lock.read_text(encoding="utf-8"), python), encoding="utf-8")
    return _download(["--require-hashes", "--requirement", str(lock)], python, into, f"the packages of {lock.name}")


def _download(what: Sequence[str], python: str, into: Path, shown: str) -> list[Path]:
    into.mkdir(parents=True, exist_ok=True)
    platforms = [word for platform in WHEEL_PLATFORMS for word in ("--platform", platform)]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python, *platforms]
    command = [*_pip(), "download", "--disable-pip-version-check", *options, "--dest", str(into), *what]
    ended = uv.captured(command, for_pip(os.environ))
    if ended.returncode:
        raise BuildError(f"{shown} could not be fetched as wheels for Python {python}: {uv.last_words(ended.stderr)}")
    return sorted(into.glob("*.whl"))


def _pip() -> list[str]:
    """Return the command of the runner's own pip, or of one that uv brings."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    return [uv.program(), "tool", "run", "pip"]
