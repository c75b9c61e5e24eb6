"""What an environment is made of: pinned requirements, and files of an upstream commit. Pure."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_REPOSITORY = r"^https://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~-]+)+$"
_COMMIT = "^[0-9a-f]{40}$"
_SHA256 = "^[0-9a-f]{64}$"
_PATH = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$"
_STAYING = r"^[A-Za-z0-9_][^\s/]*(/[^\s/]+)+$"
PATTERN_WORDS = {
    _REPOSITORY: "is not a repository's address; write it as https://HOST/OWNER/NAME",
    _COMMIT: "is not a whole commit; write its 40 digits",
    _SHA256: "is not a sha256; write its 64 digits, as sha256sum prints them",
    _PATH: "is not the path of a file in a repository",
    _STAYING: "is not a package's file, or a pattern of files, as it is installed: vllm/platforms/*.py",
}
Repository = Annotated[str, Field(pattern=_REPOSITORY)]
Commit = Annotated[str, Field(pattern=_COMMIT)]
Sha256 = Annotated[str, Field(pattern=_SHA256)]
FilePath = Annotated[str, Field(pattern=_PATH)]
Staying = Annotated[str, Field(pattern=_STAYING)]
Files = Annotated[dict[FilePath, Sha256], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SourceFile:
    """A file of an upstream commit. `url` is the repository's, `path` the file's in there, and `sha256` in hex."""

    url: Repository
    commit: Commit
    path: FilePath
    sha256: Sha256

    @property
    def place(self) -> str:
        """Its path below the directory from which scripts import it: that of the repository, or its src/."""
        return self.path.removeprefix("src/")

    @property
    def address(self) -> str:
        """Where the repository's host has the file as it is, at that commit."""
        return f"{self.url}/raw/{self.commit}/{self.path}"


@lru_cache(maxsize=4096)
def pin(requirement: str) -> str:
    """Return a pinned requirement in its canonical form, such as "torch==2.11.0" or "jax[cuda]==0.5.0".

    Raises ValueError, with what to write instead, for anything else.
    """
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        raise ValueError(f"{requirement!r} is not a requirement; write one such as 'torch==2.11.0'") from None
    specifiers = list(parsed.specifier)
    if parsed.url or len(specifiers) != 1 or specifiers[0].operator != "==" or specifiers[0].version.endswith(".*"):
        raise ValueError(f"{requirement!r} is not pinned; write {parsed.name}==VERSION")
    if parsed.marker:
        raise ValueError(f"{requirement!r} has a marker; an environment has one platform and one Python: leave it out")
    extras = f"[{','.join(sorted(map(canonicalize_name, parsed.extras)))}]" if parsed.extras else ""
    return f"{canonicalize_name(parsed.name)}{extras}=={specifiers[0].version}"


def is_wheel(word: str) -> bool:
    """Return whether this names a wheel's file, and no requirement or address."""
    return word.endswith(".whl") and "://" not in word


class Special(NamedTuple):
    """What is not locked and installed as usual: packages by canonical name, sorted; an index besides the default."""

    build: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()  # one or none
    only: tuple[str, ...] = ()  # of the packages without dependencies: the files that stay


ORDINARY = Special()
"""None of them."""


CPU_BUILD = "+cpu"
"""How a version ends that is only on the index pytorch-cpu."""
SOURCES = "upstream-sources"
"""The package that an environment has upstream's files as."""


def source_pins(files: Iterable[SourceFile]) -> list[str]:
    """Return what stands for these files among requirements: one pin, whose version names their content, or nothing."""
    told = sorted((file.place, file.sha256) for file in files)
    return [f"{SOURCES}==0+h{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"] if told else []
