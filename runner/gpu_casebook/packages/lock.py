"""Locks and script headers as text: requirements files with hashes, and PEP 723 metadata. Pure."""

import hashlib
import io
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpu_casebook.manifest.model import pin

_MACHINE, _GLIBC = "x86_64", 36
PLATFORM = f"{_MACHINE}-manylinux_2_{_GLIBC}"
"""What locks are resolved for: the C library of Debian bookworm, on which the images stand."""
_MANYLINUX = [f"manylinux_2_{minor}" for minor in range(_GLIBC, 4, -1)]
_OLDER_NAMES = ["manylinux2014", "manylinux2010", "manylinux1"]  # of 2_17, 2_12 and 2_5
WHEEL_PLATFORMS = [f"{name}_{_MACHINE}" for name in ("linux", *_MANYLINUX, *_OLDER_NAMES)]
"""Platform tags of the wheels that can be installed there: wheels for an older C library run on a newer one."""
ROOM_PER_WHEEL_BYTE = 4
"""Disk that the build of an image takes, measured on overlay2: torch 2.11.0 with CUDA 13 is 2.72 GB of wheels and
4.84 GB installed, twice: in the image, and in uv's cache, which stays on the engine for later builds."""

_HASH = r"[ \t]*\\\n[ \t]+--hash=sha256:[0-9a-f]{64}"
_ENTRY = re.compile(rf"(?m)^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]\n]*\])?==([^\s;\\]+)((?:{_HASH})*)[ \t]*$")
_HEADER = re.compile(r"# ([a-z-]+): ?(.*)")
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")  # as PEP 723 gives it


class Pin(NamedTuple):
    """One package of a lock."""

    name: str  # in canonical form
    version: str
    hashed: bool  # whether it has at least one hash


class Lock(NamedTuple):
    """A lock as parsed."""

    pins: tuple[Pin, ...]
    basis: Mapping[str, str]  # what it was made for; see `basis`
    strange: tuple[tuple[int, str], ...] = ()  # lines that do not belong in a lock, by number


class ScriptHeader(NamedTuple):
    """Inline script metadata of PEP 723."""

    requirements: list[str]
    requires_python: str | None
    line: int  # on which it begins


@lru_cache(maxsize=64)
def read_lock(text: str) -> Lock:
    """Parse a lock. Never raises: what can't be parsed is in `strange`."""
    pins: list[Pin] = []

    def take(entry: re.Match[str]) -> str:
        pins.append(Pin(canonicalize_name(entry[1]), entry[2], bool(entry[3])))
        return "\n" * entry[0].count("\n")

    rest = enumerate(_ENTRY.sub(take, text).splitlines(), 1)
    strange = tuple((number, line) for number, line in rest if line and not line.isspace() and not line.startswith("#"))
    return Lock(tuple(pins), _header(text), strange)


def _header(text: str) -> dict[str, str]:
    """Return the "# key: value" comments at the top of a lock."""
    comments = takewhile(lambda line: line.startswith("#"), io.StringIO(text))
    return {match[1]: match[2] for line in comments if (match := _HEADER.fullmatch(line.rstrip("\n")))}


def basis(requirements: Iterable[str], python: str) -> dict[str, str]:
    """Return the part of a lock's header that says what it was made for."""
    return {"requirements": " ".join(sorted(map(pin, requirements))), "python": python, "platform": PLATFORM}


def pins(requirements: Iterable[str]) -> dict[str, str]:
    """Return the pinned versions by canonical name. Raises ValueError for a requirement that is not pinned."""
    parsed = [Requirement(pin(each)) for each in requirements]
    return {each.name: next(iter(each.specifier)).version for each in parsed}


def wheel_bytes(lock_text: str) -> int | None:
    """Return how many bytes installing the lock downloads, or None if the lock does not say."""
    size = _header(lock_text).get("download-bytes", "")
    return int(size) if size.isdecimal() else None


def installed_bytes(download: int) -> int:
    """Return an upper bound on the disk that wheels of `download` bytes take once they are installed.

    Measured: torch 2.11.0 with CUDA 13, 2.72 GB of wheels, 4.84 GB; Triton 3.6.0 with NumPy, 205 MB, 749 MB; Triton
    2.2.0, 187 MB, 532 MB; NumPy with PyYAML, 80 MB, four times its wheels.
    """
    return min(4 * download, 2 * download + 500_000_000)


def content_key(lock_text: str, python: str, *more: str) -> str:
    """Return a sha256 over what decides what gets installed: equal keys, equal packages. Comments don't count.

    `more` is whatever else the caller's environments differ by, such as an image's name.
    """
    lines = sorted(" ".join(match[0].replace("\\", " ").split()) for match in _ENTRY.finditer(lock_text))
    return hashlib.sha256("\0".join([python, *more, *lines]).encode()).hexdigest()


def script_header(text: str) -> ScriptHeader | None:
    """Return the script's PEP 723 header, or None. Raises ValueError, with what to do, if it can't be read."""
    blocks = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if len(blocks) > 1:
        raise ValueError("has two headers of inline script metadata; keep one")
    if not blocks:
        return None
    requirements, requires_python = _parsed_header(blocks[0]["content"])
    return ScriptHeader(list(requirements), requires_python, text.count("\n", 0, blocks[0].start()) + 1)


@lru_cache(maxsize=1024)
def _parsed_header(block: str) -> tuple[tuple[str, ...], str | None]:
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in block.splitlines(keepends=True))
    try:
        data = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"has a header that is not TOML: {error}") from None
    dependencies, requires_python = data.get("dependencies", []), data.get("requires-python")
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise ValueError("has a header whose dependencies are not a list of strings")
    if requires_python is not None and not isinstance(requires_python, str):
        raise ValueError("has a header whose requires-python is not a string")
    return tuple(dependencies), requires_python


def same_version(one: str, other: str) -> bool:
    try:
        return one == other or Version(one) == Version(other)
    except InvalidVersion:
        return False
