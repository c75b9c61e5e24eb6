"""The released versions of a package, as the package index lists them.

Reading a listing is pure; `released` asks the index that uv uses here, in JSON (PEP 691) or, where that is all it has,
in HTML (PEP 503).
"""

import json
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages.lock import PLATFORM, WHEEL_PLATFORMS
from gpu_casebook.packages.resolve import index_settings
from gpu_casebook.packages.uv import default_index

JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
WAIT_S = 60.0
LIMIT = 64 * 2**20
"""Bytes of one listing. The longest ones known are a few megabytes."""


class File(NamedTuple):
    """One file of a listing. `yanked` is the reason, "" where none is given, None where it is not yanked."""

    name: str
    requires_python: str | None = None
    yanked: str | None = None


@dataclass(frozen=True)
class Release:
    """One version, with its files."""

    version: Version
    files: tuple[File, ...]

    @property
    def yanked(self) -> str | None:
        """Why it was withdrawn; None if any of its files is still offered."""
        reasons = [file.yanked for file in self.files]
        return None if None in reasons else next(filter(None, reasons), "no reason is given")

    def unfit(self, python: str) -> str | None:
        """Why this platform and Python (such as "3.11") can't have it, in a few words."""
        wanted = [file for file in self.files if _allows(file.requires_python, python)]
        if not wanted:
            needs = sorted({file.requires_python or "" for file in self.files})
            return f"it needs Python {' or '.join(needs)}"
        if any(_fits(file.name, python) for file in wanted):
            return None
        return f"it has no wheel for Python {python} on {PLATFORM}, and no source"

    def barred(self, python: str, *, pre: bool) -> str | None:
        """Why a search leaves it out."""
        if self.yanked is not None:
            return f"yanked: {self.yanked}"
        if self.version.is_prerelease and not pre:
            return "a pre-release"
        return self.unfit(python)


@dataclass(frozen=True)
class Releases:
    """Every release of a package, the oldest first."""

    package: str
    all: tuple[Release, ...]

    @cached_property
    def _by_version(self) -> Mapping[Version, Release]:
        return {release.version: release for release in self.all}

    def find(self, text: str) -> Release:
        """Raises UsageError for what is no version, does not exist, or was yanked."""
        try:
            version = Version(text)
        except InvalidVersion:
            raise UsageError(f"{self.package} {text}: that is no version; write one such as 2.1.0") from None
        release = self._by_version.get(version)
        if release is None:
            raise UsageError(f"{self.package} {text}: there is no such release{self._nearest(version)}")
        if release.yanked is not None:
            raise UsageError(f"{self.package} {text} was yanked: {release.yanked}{self._nearest(version)}")
        return release

    def _nearest(self, version: Version) -> str:
        there = [release.version for release in self.all if release.yanked is None and release.version != version]
        stable = [each for each in there if not each.is_prerelease] or there
        near = [*[each for each in stable if each < version][-2:], *[each for each in stable if each > version][:2]]
        return f"; the nearest are {', '.join(map(str, near))}" if near else ""

    def between(self, low: Release, high: Release) -> list[Release]:
        """The releases after `low` and before `high`."""
        return [release for release in self.all if low.version < release.version < high.version]

    def newest(self, python: str) -> Release | None:
        """The newest that can be had here and is no pre-release."""
        return next((release for release in reversed(self.all) if not release.barred(python, pre=False)), None)


def _allows(requires_python: str | None, python: str) -> bool:
    """Any patch of that minor version will do: a runner has some late one."""
    if not requires_python:
        return True
    try:
        allowed = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return True
    return any(allowed.contains(f"{python}.{patch}") for patch in (0, 30))


def _fits(name: str, python: str) -> bool:
    if not name.endswith(".whl"):
        return name.endswith((".tar.gz", ".zip"))
    return not _tags(python).isdisjoint(parse_wheel_filename(name)[3])


@lru_cache(maxsize=8)
def _tags(python: str) -> frozenset[Tag]:
    """What may be installed on the platform that locks are made for."""
    major, minor = map(int, python.split("."))
    tags = [*cpython_tags((major, minor), platforms=WHEEL_PLATFORMS)]
    return frozenset([*tags, *compatible_tags((major, minor), f"cp{major}{minor}", WHEEL_PLATFORMS)])


# Reading a listing


def parse(package: str, content_type: str, body: bytes) -> Releases:
    """Raises ValueError for what is no listing. Files whose names say no version are left out."""
    json_told = content_type.partition(";")[0].strip().endswith("json")
    files = _from_json(body) if json_told else _from_html(body.decode("utf-8", "replace"))
    found: dict[Version, list[File]] = {}
    for file in files:
        if version := _version(package, file.name):
            found.setdefault(version, []).append(file)
    return Releases(package, tuple(Release(version, tuple(found[version])) for version in sorted(found)))


def _from_json(body: bytes) -> Iterator[File]:
    data = json.loads(body)
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise ValueError("it has no list of files")  # noqa: TRY004
    for file in data["files"]:
        yanked = file.get("yanked", False)
        reason = yanked if isinstance(yanked, str) else ""
        yield File(str(file.get("filename")), file.get("requires-python") or None, reason if yanked else None)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (href := given.get("href")):
            name = unquote(urlsplit(href).path.rpartition("/")[2])
            yanked = (given["data-yanked"] or "") if "data-yanked" in given else None
            self.files.append(File(name, given.get("data-requires-python"), yanked))


def _from_html(text: str) -> Sequence[File]:
    links = _Links()
    links.feed(text)
    return links.files


def _version(package: str, name: str) -> Version | None:
    try:
        found, version = parse_wheel_filename(name)[:2] if name.endswith(".whl") else parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    return version if found == canonicalize_name(package) else None


# Asking


def released(package: str) -> Releases:
    """Every release of the package.

    Raises BuildError where the index can't be reached or gives no listing, and UsageError where it has no such package.
    """
    address = f"{_index().rstrip('/')}/{canonicalize_name(package)}/"
    content_type, body = _get(address, package)
    try:
        found = parse(package, content_type, body)
    except ValueError as error:
        raise BuildError(f"the package index gives no listing of {package} that can be read: {error}") from None
    if not found.all:
        raise UsageError(f"the package index has no release of {package}")
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """A tail for a message: "; did you mean torch?", or what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else f" (there are: {', '.join(names) or 'none'})"


def _index() -> str:
    """Where uv takes packages from here: as its settings or pip's say, else its own default, as it tells itself."""
    told = index_settings(os.environ)
    configured = told.get("UV_DEFAULT_INDEX") or told.get("UV_INDEX_URL")
    if configured:
        return re.sub(r"^[\w.-]+=(?=\w+://)", "", configured)
    index = default_index(told)
    if index is None:
        raise BuildError("uv does not say which package index it uses; name one in UV_DEFAULT_INDEX")
    return index


def _get(address: str, package: str) -> tuple[str, bytes]:
    from urllib.error import HTTPError  # noqa: PLC0415 it brings TLS along, which few commands need
    from urllib.request import Request, urlopen  # noqa: PLC0415

    request = Request(address, headers={"Accept": ACCEPT})  # noqa: S310 - the index that the user configured
    try:
        with urlopen(request, timeout=WAIT_S, context=_trust()) as answer:  # noqa: S310
            return answer.headers.get("Content-Type", ""), answer.read(LIMIT)
    except HTTPError as error:
        if error.code in {404, 410}:
            raise UsageError(f"the package index has no package {package}") from None
        raise BuildError(f"the package index refuses the listing of {package}: {error.code} {error.reason}") from None
    except OSError as error:
        why = getattr(error, "reason", None) or error
        raise BuildError(f"the package index can't be reached: {why}") from None


def _trust() -> ssl.SSLContext:
    """The certificates that uv is told of, where the host has some of its own."""
    bundle = index_settings(os.environ).get("SSL_CERT_FILE")
    return ssl.create_default_context(cafile=bundle if bundle and os.path.isfile(bundle) else None)  # noqa: PTH113


Listing = Callable[[str], Releases]
"""`released`, or what a test has in its place."""
