"""Locks and script headers as text: requirements files with hashes, and PEP 723 metadata. Pure."""

import hashlib
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpu_casebook.errors import BuildError, Problem
from gpu_casebook.pins import ORDINARY, Special, pin

MACHINE, _GLIBC = "x86_64", 36
GLIBC = f"2.{_GLIBC}"
PLATFORM = f"{MACHINE}-manylinux_2_{_GLIBC}"
"""What locks are resolved for: the C library of Debian bookworm, on which the images stand."""
_MANYLINUX = [f"manylinux_2_{minor}" for minor in range(_GLIBC, 4, -1)]
_OLDER_NAMES = ["manylinux2014", "manylinux2010", "manylinux1"]  # of 2_17, 2_12 and 2_5
WHEEL_PLATFORMS = [f"{name}_{MACHINE}" for name in ("linux", *_MANYLINUX, *_OLDER_NAMES)]
"""Platform tags of the wheels that can be installed there: wheels for an older C library run on a newer one."""
ROOM_PER_WHEEL_BYTE = 4
"""Disk that the build of an image takes, measured on overlay2: torch 2.11.0 with CUDA 13 is 2.72 GB of wheels and
4.84 GB installed, twice: in the image, and in uv's cache, which stays on the engine for later builds."""

_HASH = r"(?:[ \t]+|[ \t]*\\\r?\n[ \t]+)--hash=sha256:[0-9a-f]{64}"
_MARKER = r"[ \t]*;([^\n\\#-]+)"
_ENTRY = re.compile(
    rf"(?am)^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[\w.,-]*\])?==([\w.!+-]+)(?:{_MARKER})?((?:{_HASH})*)[ \t]*\r?$"
)
_HEADER = re.compile(r"# ([a-z-]+): ?(.*)")
_SPECIAL = ("build", "without-dependencies", "index", "only-files")  # of a lock's header, as in `Special`


class Pin(NamedTuple):
    """One package of a lock."""

    name: str  # in canonical form
    version: str
    hashed: bool  # whether it has at least one hash
    marker: str = ""  # under which condition it gets installed
    line: int = 1


class Lock(NamedTuple):
    """A lock as parsed."""

    pins: tuple[Pin, ...]
    basis: Mapping[str, str]  # what it was made for; see `basis`
    strange: tuple[tuple[int, str], ...] = ()  # lines that do not belong in a lock, by number

    @property
    def special(self) -> Special:
        """What its header says of packages that are not installed as the others are."""
        return Special(*(tuple(self.basis.get(key, "").split()) for key in _SPECIAL))


@lru_cache(maxsize=64)
def read_lock(text: str) -> Lock:
    """Parse a lock. Never raises: what can't be parsed is in `strange`."""
    pins: list[Pin] = []
    line, before = 1, 0

    def take(entry: re.Match[str]) -> str:
        nonlocal line, before
        line, before = line + text.count("\n", before, entry.start()), entry.start()
        pins.append(Pin(canonicalize_name(entry[1]), entry[2], bool(entry[4]), (entry[3] or "").strip(), line))
        return "\n" * entry[0].count("\n")

    rest = enumerate(_ENTRY.sub(take, text).splitlines(), 1)
    strange = tuple((number, line) for number, line in rest if line and not line.isspace() and not line.startswith("#"))
    return Lock(tuple(pins), _header(text), strange)


def _header(text: str) -> dict[str, str]:
    """Return the "# key: value" comments at the top of a lock."""
    comments = takewhile(lambda line: line.startswith("#"), io.StringIO(text))
    return {match[1]: match[2] for line in comments if (match := _HEADER.fullmatch(line.rstrip("\n")))}


def problems(
    text: str, name: str, requirements: Iterable[str], python: str, again: str, *, special: Special = ORDINARY
) -> Iterator[Problem]:
    """Yield why the lock in the file `name` is not the one of these requirements; `again` says how it is written."""
    lock, wanted = read_lock(text), list(requirements)
    rights = dict.fromkeys(_SPECIAL, "") | basis(wanted, python, special)
    stale = {key: right for key, right in rights.items() if lock.basis.get(key, "") != right}
    if lock.basis.get("python", "").startswith(f"{python}."):
        del stale["python"]  # to the patch
    for key, right in stale.items():
        was = lock.basis.get(key) or "nothing"
        yield Problem(name, 1, key, f"was made for {was}, the manifest says {right or 'nothing'}; {again}")
    there = {each.name: each.version for each in lock.pins}
    for package, version in () if stale else pins(wanted).items():
        if not same_version(there.get(package, ""), version):
            found = there.get(package, "none")
            yield Problem(name, 1, package, f"{found} in the lock, the manifest says {version}; {again}")
    for line, where, what in _flaws(lock, python):
        yield Problem(name, line, where, f"{what}; {again}" if where else what)


def _flaws(lock: Lock, python: str) -> Iterator[tuple[int, str, str]]:
    """Yield what makes it no lock at all, whatever it is for: line, package, what."""
    seen: set[str] = set()
    for each in lock.pins:
        if not each.hashed:
            yield each.line, each.name, "has no hash"
        if each.name in seen:
            yield each.line, each.name, "stands there twice"
        seen.add(each.name)
        if each.marker and not _holds(each.marker, python):
            yield each.line, each.name, f"would not be installed: {each.marker} does not hold on {PLATFORM}"
    for line, text in lock.strange:
        yield line, "", f"{text.strip()!r} has no place in a lock: pinned packages with hashes alone do"


def _holds(marker: str, python: str) -> bool:
    """Return whether a marker holds with this Python where environments are."""
    there = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    there |= {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": MACHINE}
    try:
        return Marker(marker).evaluate(there)
    except (InvalidMarker, UndefinedEnvironmentName):
        return False


def installable(text: str, python: str) -> str:
    """Return the lock as the installer gets it: what was read, and nothing else. Raises BuildError.

    A line of another kind (an index, an address, a file, a variable) would have the installer take packages from there.
    """
    for line, where, what in _flaws(read_lock(text), python):
        raise BuildError(": ".join(filter(None, [f"line {line} of the lock", where, what])))
    return exactly("".join(f"{line}\n" for line in _lines(text)))


def exactly(lines: str) -> str:
    """Return lines of a lock by which nothing but these versions fits.

    To == 2.13.0 a local build is as good, 2.13.0+cpu, and newer: an installer that is told of one would take it.
    """
    return re.sub(r"(?m)^([^=\s]+)==(?!=)", r"\1===", lines)


def entries(text: str) -> dict[Pin, frozenset[str]]:
    """Return what is pinned, with the sha256 of each file that will do."""
    hashes = (frozenset(re.findall(r"sha256:([0-9a-f]{64})", match[0])) for match in _ENTRY.finditer(text))
    return dict(zip(read_lock(text).pins, hashes, strict=True))


def _lines(text: str) -> list[str]:
    """Return each requirement with its hashes on a line, sorted."""
    return sorted(" ".join(match[0].replace("\\", " ").split()) for match in _ENTRY.finditer(text))


def without(text: str, names: Collection[str]) -> str:
    """Return the lock without these packages, named in canonical form."""
    return _ENTRY.sub(lambda entry: "" if canonicalize_name(entry[1]) in names else entry[0], text)


def fewer(text: str, names: Collection[str]) -> str:
    """Return the lock with these packages alone, named in canonical form."""
    return without(text, {pin.name for pin in read_lock(text).pins} - set(names))


def basis(requirements: Iterable[str], python: str, special: Special = ORDINARY) -> dict[str, str]:
    """Return the part of a lock's header that says what it was made for."""
    header = {"requirements": " ".join(sorted(map(pin, requirements))), "python": python, "platform": PLATFORM}
    return header | {key: " ".join(names) for key, names in zip(_SPECIAL, special, strict=True) if names}


def alone(names: Iterable[str]) -> str:
    """Return a uv.toml by which these packages depend on nothing, so that none of them is built to find it out."""
    return "".join(
        f'[[dependency-metadata]]\nname = "{canonicalize_name(name)}"\nrequires-dist = []\n' for name in names
    )


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
    """Return a sha256 over what decides what gets installed: equal keys, equal packages and files of them.

    `more` is whatever else the caller's environments differ by, such as an image's name.
    """
    parts = [python, *more, *_lines(lock_text), *read_lock(lock_text).special.only]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def same_version(one: str, other: str) -> bool:
    try:
        return one == other or Version(one) == Version(other)
    except InvalidVersion:
        return False
