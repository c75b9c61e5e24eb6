"""Which drivers and GPUs work with what a lock pins. The tables are in compatibility.toml."""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version


class Build(NamedTuple):
    """A kind of PyTorch wheel, by ranges of torch and CUDA versions."""

    torch: str
    cuda: str
    has: Sequence[str]  # compute capabilities that it has code for, in rising order
    ptx: bool = False  # whether the driver compiles code for newer ones

    def covers(self, capability: str) -> bool:
        """Return whether its code runs on a GPU of this compute capability."""
        wanted = Version(capability)
        have = [Version(each) for each in self.has]
        return any(each.major == wanted.major and each <= wanted for each in have) or (self.ptx and wanted > max(have))


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("compatibility.toml").read_text(encoding="utf-8"))


def least_driver(cuda: str) -> str | None:
    """Return the least driver for any minor version of this CUDA, or None where it is not known."""
    least: str | None = _tables()["driver"].get(cuda.partition(".")[0])
    return least


def is_older(version: str, than: str) -> bool:
    return Version(version) < Version(than)


def build(torch: str, cuda: str) -> Build | None:
    """Return PyTorch's wheel of this version for this CUDA, or None where it is not known."""
    return next((row for row in _builds() if _within(row.torch, torch) and _within(row.cuda, cuda)), None)


def having(capability: str) -> list[Build]:
    """Return the builds that have code for this compute capability, the earliest first."""
    return [row for row in _builds() if row.covers(capability)]


def _builds() -> list[Build]:
    return [Build(**row) for row in _tables()["torch"]]


def _within(range_: str, version: str) -> bool:
    return SpecifierSet(range_).contains(Version(version).base_version, prereleases=True)
