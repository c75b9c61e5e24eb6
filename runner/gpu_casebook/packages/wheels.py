"""Wheels for a host without a network: those of the runner itself, and those of a case's lock."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages import uv
from gpu_casebook.packages.lock import WHEEL_PLATFORMS
from gpu_casebook.packages.settings import for_pip
from gpu_casebook.trial import Note


def runner_pins(roots: Iterable[str], python: str) -> list[str]:
    """name==version of what the runner needs with that Python, at the versions that it runs with here."""
    # What markers are asked about: the host's Python, on Linux as here.
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    pins: dict[str, str] = {}
    left = [Requirement(root) for root in roots]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in pins or not _applies(wanted, environment):
            continue
        pins[name] = _version(name)
        left += [Requirement(text) for text in metadata.requires(name) or ()]
    return [f"{name}=={version}" for name, version in sorted(pins.items())]


def name_of(requirement: str) -> str:
    """In canonical form."""
    return canonicalize_name(Requirement(requirement).name)


def _applies(wanted: Requirement, environment: Mapping[str, str]) -> bool:
    return wanted.marker is None or wanted.marker.evaluate(dict(environment))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        raise UsageError(
            f"{name} is not installed here, and the runner needs it there; install it and pack again"
        ) from None


def download_pins(pins: Sequence[str], python: str, into: Path, note: Note) -> list[Path]:
    """Download the wheels of these pins. Raises BuildError."""
    note(f"fetching {len(pins)} wheels of the runner for Python {python}")
    return _download([*pins], python, into, "the runner's packages")


def download_lock(lock: Path, python: str, into: Path, note: Note) -> list[Path]:
    """Download the wheels of a lock, each checked against its hash. Raises BuildError."""
    note(f"fetching the wheels of {lock.name}")
    return _download(["--require-hashes", "--requirement", str(lock)], python, into, f"the packages of {lock.name}")


def _download(what: Sequence[str], python: str, into: Path, shown: str) -> list[Path]:
    into.mkdir(parents=True, exist_ok=True)
    platforms = [word for platform in WHEEL_PLATFORMS for word in ("--platform", platform)]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python, *platforms]
    done = subprocess.run(
        [*_pip(), "download", "--disable-pip-version-check", *options, "--dest", str(into), *what],
        env=for_pip(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{shown} could not be fetched as wheels for Python {python}: {_last_words(done.stderr)}")
    return sorted(into.glob("*.whl"))


def _pip() -> list[str]:
    """Return the command of the runner's own pip, or of one that uv brings."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    return [uv.program(), "tool", "run", "pip"]


def _last_words(stderr: str) -> str:
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return " ".join((errors[-1] if errors else stderr[-300:]).split()) or "pip said nothing"
