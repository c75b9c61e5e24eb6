"""Requirements of a manifest, each pinned, and what is special about some of them. Pure."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_casebook.source_file import SourceFile


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


class Special(NamedTuple):
    """What is not locked and installed as usual: packages by canonical name, sorted; an index besides the default."""

    build: tuple[str, ...] = ()
    without_dependencies: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()  # one or none


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
