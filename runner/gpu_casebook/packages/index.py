"""PyTorch's index of CPU builds: where uv takes the packages from that are nowhere else.

uv knows the index, as a torch backend. An index of that name in uv's settings (`UV_INDEX=pytorch-cpu=ADDRESS`) is a
mirror of it. What a directory of wheels (`UV_FIND_LINKS`) has, by its hash, is asked of neither.
"""

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import file_digest
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from gpu_casebook.errors import BuildError
from gpu_casebook.packages.lock import entries, read_lock
from gpu_casebook.packages.settings import ANY_INDEX, for_uv
from gpu_casebook.pins import CPU_BUILD, SOURCES


class UnreachableError(BuildError):
    """A package index can't be reached."""


NAME = "pytorch-cpu"
BACKEND = "UV_TORCH_BACKEND"


def pinned(text: str) -> dict[tuple[str, Version], frozenset[str]]:
    """Return the packages that a lock has from the index, with the hashes of their files."""
    every = entries(text) if read_lock(text).special.indexes else {}
    return {
        (pin.name, Version(pin.version)): hashes for pin, hashes in every.items() if pin.version.endswith(CPU_BUILD)
    }


def wheels(text: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the wheels that local directories have of what the lock has from the index: all of them, or none."""
    wanted = pinned(text)
    found = {}
    for key, path in _local(environ):
        if key in wanted and key not in found and sha256(path) in wanted[key]:
            found[key] = path
    return list(found.values()) if len(found) == len(wanted) else []


def candidates(requirements: Iterable[str], environ: Mapping[str, str]) -> list[Path]:
    """Return the wheels that local directories have of the builds that are required."""
    parsed = [Requirement(each) for each in requirements]
    wanted = {(each.name, str(each.specifier).removeprefix("==")) for each in parsed}
    return [path for (name, version), path in _local(environ) if (name, str(version)) in wanted and version.local]


def _local(environ: Mapping[str, str]) -> Iterable[tuple[tuple[str, Version], Path]]:
    places = for_uv(environ).get("UV_FIND_LINKS", "").split(",")
    for path in (path for place in filter(None, places) for path in sorted(Path(place).glob("*.whl"))):
        try:
            yield parse_wheel_filename(path.name)[:2], path
        except InvalidWheelFilename:
            continue


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def reaching(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` for a uv that looks at the index too, or at its mirror in these settings of uv."""
    if address := mirror(settings):
        return without_backend({"UV_INDEX": f"{NAME}={address}", **dict([ANY_INDEX]), **environ})
    return {**environ, BACKEND: "cpu"}


def mirror(settings: Mapping[str, str]) -> str | None:
    """Return the address that these settings of uv give the index."""
    words = settings.get("UV_INDEX", "").split()
    return next((word.removeprefix(f"{NAME}=") for word in words if word.startswith(f"{NAME}=")), None)


def without_backend(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name != BACKEND}


def installing(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv finds all that the lock has: the host's torch backend is for other builds."""
    if pinned(text) and not wheels(text, environ):
        return reaching(environ, environ)
    others = not pinned(text) and any("+" in each.version for each in read_lock(text).pins if each.name != SOURCES)
    return dict(environ) if others else without_backend(environ)


def explained(error: BuildError, text: str, settings: Mapping[str, str] | None = None) -> BuildError:
    """Return what to say where a lock can't be installed: the error itself, unless the index can't be reached."""
    words = str(error)
    told = advice(words, pinned(text), for_uv(os.environ) if settings is None else settings)
    if not told or not unreachable(words):
        return error
    log = re.search(r"\(the whole log: [^)\n]*\)|full log: \S+", words)
    return UnreachableError(f"the environment could not be built: {told}" + (f" {log[0]}" if log else ""))


def unreachable(words: str) -> bool:
    """Return whether `words` of uv say that it could not connect to an index. A refused request does not count."""
    refused = re.search(r"HTTP status client error|status code: 4\d\d", words, re.IGNORECASE)
    failed = r"failed to fetch|error sending request|dns error|connection refused|timed out"
    return not refused and bool(re.search(failed, words, re.IGNORECASE))


def advice(words: str, builds: Iterable[tuple[str, object]], settings: Mapping[str, str]) -> str | None:
    """Return what to do where uv, with these settings, says that it could not reach the index, or None."""
    address = mirror(settings)  # which is asked for all packages; the index itself for these alone
    for name, version in builds:
        if address in words if address else re.search(rf"/{re.escape(name)}/?[\s`')]", f"{words} "):
            what = f"the index {NAME} can't be reached, and no directory of wheels has {name} {version}"
            return f"{what}: name one that has it in UV_FIND_LINKS, or a mirror as UV_INDEX={NAME}=ADDRESS"
    return None
