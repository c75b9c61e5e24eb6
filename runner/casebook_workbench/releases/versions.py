"""The released versions of a package, as the package index lists them.

Reading a listing is pure; `released` asks the index that uv uses here, in JSON (PEP 691) or, where that is all it has,
in HTML (PEP 503).
"""

import os
import re
import ssl
from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, Field, ValidationError

from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages.lock import PLATFORM, WHEEL_PLATFORMS
from gpu_casebook.packages.resolve import index_settings
from gpu_casebook.packages.uv import default_index

JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
WAIT_S = 60.0
LIMIT = 64 * 2**20
"""Bytes of one listing. The longest ones known are a few megabytes."""


class File(BaseModel, populate_by_name=True):
    """One file of a listing, as PEP 691 has it."""

    filename: str
    requires_python: str | None = Field(None, alias="requires-python")
    yanked: bool | str = False  # or the reason

    def allows(self, python: str) -> bool:
        """Return whether any patch of that minor version will do: a runner has some late one."""
        try:
            allowed = SpecifierSet(self.requires_python or "")
        except InvalidSpecifier:
            return True
        return any(allowed.contains(f"{python}.{patch}") for patch in (0, 30))

    def fits(self, python: str) -> bool:
        """Return whether it can be installed on the platform that locks are made for."""
        if not self.filename.endswith(".whl"):
            return self.filename.endswith((".tar.gz", ".zip"))
        return not _tags(python).isdisjoint(parse_wheel_filename(self.filename)[3])


class _Listing(BaseModel):
    files: list[File]


@dataclass(frozen=True)
class Release:
    """One version, with its files."""

    version: Version
    files: list[File]

    @property
    def yanked(self) -> str | None:
        """Why it was withdrawn; None if any of its files is still offered."""
        reasons = [file.yanked for file in self.files]
        if not all(reasons):
            return None
        return next((reason for reason in reasons if isinstance(reason, str)), "no reason is given")

    def unfit(self, python: str) -> str | None:
        """Return why this platform and Python (such as "3.11") can't have it, in a few words, or None."""
        wanted = [file for file in self.files if file.allows(python)]
        if not wanted:
            return f"it needs Python {' or '.join(sorted({file.requires_python or '' for file in self.files}))}"
        if any(file.fits(python) for file in wanted):
            return None
        return f"it has no wheel for Python {python} on {PLATFORM}, and no source"

    def barred(self, python: str, *, pre: bool) -> str | None:
        """Return why a search leaves it out, or None. Pre-releases are tried where `pre` is set."""
        if self.yanked:
            return f"yanked: {self.yanked}"
        if self.version.is_prerelease and not pre:
            return "a pre-release"
        return self.unfit(python)


@dataclass(frozen=True)
class Releases:
    """Every release of a package, the oldest first."""

    package: str
    all: list[Release]

    def find(self, text: str) -> Release:
        """Return the release. Raises UsageError for what is no version, does not exist, or was yanked."""
        try:
            version = Version(text)
        except InvalidVersion:
            raise UsageError(f"{self.package} {text}: that is no version; write one such as 2.1.0") from None
        releases = {each.version: each for each in self.all}
        release = releases.get(version) or releases.get(Version(version.public))  # of which it is a build for the CPU
        if release is None:
            raise UsageError(f"{self.package} {text}: there is no such release{self._nearest(version)}")
        if release.yanked:
            raise UsageError(f"{self.package} {text} was yanked: {release.yanked}{self._nearest(version)}")
        return release

    def _nearest(self, version: Version) -> str:
        stable = [each.version for each in self.all if not each.yanked and not each.version.is_prerelease]
        at = bisect(stable, version)
        near = stable[max(at - 2, 0) : at + 2]
        return f"; the nearest are {', '.join(map(str, near))}" if near else ""

    def newest(self, python: str) -> str | None:
        """Return the newest version that can be had here and is no pre-release."""
        return next((str(each.version) for each in reversed(self.all) if not each.barred(python, pre=False)), None)


@lru_cache(maxsize=8)
def _tags(python: str) -> frozenset[Tag]:
    major, minor = map(int, python.split("."))
    tags = [*cpython_tags((major, minor), platforms=WHEEL_PLATFORMS)]
    return frozenset([*tags, *compatible_tags((major, minor), f"cp{major}{minor}", WHEEL_PLATFORMS)])


# Reading a listing


def parse(package: str, content_type: str, body: bytes) -> Releases:
    """Read a listing, without the files whose names say no version. Raises ValidationError for JSON of another kind."""
    if content_type.partition(";")[0].strip().endswith("json"):
        files = _Listing.model_validate_json(body).files
    else:
        links = _Links()
        links.feed(body.decode("utf-8", "replace"))
        files = links.files
    found = defaultdict[Version, list[File]](list)
    for file in files:
        if version := _version(package, file.filename):
            found[version].append(file)
    return Releases(package, [Release(version, found[version]) for version in sorted(found)])


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (href := given.get("href")):
            name = unquote(urlsplit(href).path.rpartition("/")[2])
            yanked = "data-yanked" in given and (given["data-yanked"] or True)
            self.files.append(File(filename=name, requires_python=given.get("data-requires-python"), yanked=yanked))


def _version(package: str, name: str) -> Version | None:
    try:
        found, version = parse_wheel_filename(name)[:2] if name.endswith(".whl") else parse_sdist_filename(name)
    except ValueError:  # what is wrong with the name or its version is of no interest
        return None
    return version if found == canonicalize_name(package) else None


# Asking


def released(package: str) -> Releases:
    """Return every release of the package.

    Raises BuildError where the index can't be reached or gives no listing, and UsageError where it has no such package.
    """
    environ = index_settings(os.environ)
    content_type, body = _get(f"{_index(environ).rstrip('/')}/{canonicalize_name(package)}/", package, environ)
    try:
        found = parse(package, content_type, body)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise BuildError(f"the package index gives no listing of {package} that can be read: {why}") from None
    if not found.all:
        raise UsageError(f"the package index has no release of {package}")
    return found


def _index(environ: Mapping[str, str]) -> str:
    """Return where uv takes packages from here: what its settings or pip's say, or else what it says itself."""
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or default_index(environ)
    if index is None:
        raise BuildError("uv does not say which package index it uses; name one in UV_DEFAULT_INDEX")
    return re.sub(r"^[\w.-]+=(?=\w+://)", "", index)  # an index may have a name: ours=https://...


def _get(address: str, package: str, environ: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the content type and the body of the answer, whose certificate is checked as uv does it."""
    from urllib.error import HTTPError  # noqa: PLC0415 it brings TLS along, which few commands need
    from urllib.request import Request, urlopen  # noqa: PLC0415

    bundle = environ.get("SSL_CERT_FILE", "")
    trusted = ssl.create_default_context(cafile=bundle if os.path.isfile(bundle) else None)  # noqa: PTH113
    request = Request(address, headers={"Accept": ACCEPT})  # noqa: S310 - the index that the user configured
    try:
        with urlopen(request, timeout=WAIT_S, context=trusted) as answer:  # noqa: S310
            return answer.headers.get("Content-Type", ""), answer.read(LIMIT)
    except HTTPError as error:
        if error.code in {404, 410}:
            raise UsageError(f"the package index has no package {package}") from None
        raise BuildError(f"the package index refuses the listing of {package}: {error.code} {error.reason}") from None
    except OSError as error:
        raise BuildError(f"the package index can't be reached: {getattr(error, 'reason', error)}") from None
