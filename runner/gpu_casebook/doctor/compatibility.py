"""Does this driver, and does this GPU, do for what a lock pins? The tables are in compatibility.toml."""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version


class Build(NamedTuple):
    """A kind of PyTorch wheel: the compute capabilities it has code for, and whether newer GPUs get theirs compiled."""

    torch: str
    cuda: str
    has: Sequence[str]
    ptx: bool = False

    def fits(self, torch: str, cuda: str) -> bool:
        return _within(self.torch, torch) and _within(self.cuda, cuda)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("compatibility.toml").read_text(encoding="utf-8"))


def least_driver(cuda: str) -> str | None:
    """The least driver for any minor version of this CUDA; None where it is not known."""
    least: str | None = _tables()["driver"].get(cuda.partition(".")[0])
    return least


def is_older(version: str, than: str) -> bool:
    return Version(version) < Version(than)


def build(torch: str, cuda: str) -> Build | None:
    """What PyTorch's wheel of this version for this CUDA has code for; None where it is not known."""
    return next((row for row in builds() if row.fits(torch, cuda)), None)


def builds() -> list[Build]:
    return [Build(**row) for row in _tables()["torch"]]


def covers(build: Build, capability: str) -> bool:
    """Whether its code runs on a GPU of this compute capability."""
    wanted = Version(capability)
    have = [Version(each) for each in build.has]
    return any(each.major == wanted.major and each <= wanted for each in have) or (build.ptx and wanted > max(have))


def having(capability: str) -> list[Build]:
    """The builds that have code for this compute capability, the earliest first."""
    return [row for row in builds() if covers(row, capability)]


def _within(range_: str, version: str) -> bool:
    return SpecifierSet(range_).contains(Version(version).base_version, prereleases=True)
