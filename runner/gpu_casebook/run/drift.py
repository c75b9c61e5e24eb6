"""What is really installed and was loaded, against what is locked: each difference, and how much it matters. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from packaging.utils import canonicalize_name

from gpu_casebook.evidence import Attestation
from gpu_casebook.packages.lock import Pin, read_lock, same_version
from gpu_casebook.text import one_line
from gpu_casebook.trial import Recipe

_RELEVANT = re.compile(r"torch|triton|nvidia-.*")
_DRIVER = re.compile(r"lib(cuda|cudadebugger|nvidia-.*|nvcuvid)\.so.*")
_ENVIRONMENT = "/env/"
"""As the venv engine calls it."""
_LISTED = 300
_OTHER = ""
"""About nothing that a failure can depend on."""


class Difference(NamedTuple):
    """One line of drift. `about` is a package by its canonical name; None for what acts on all that a trial runs."""

    text: str
    about: str | None = None

    def of(self, variant: str) -> "Difference":
        return self._replace(text=f"{variant}: {self.text}")


@dataclass
class Loaded:
    """What the trials of one variant were seen to have loaded, and which foreign Pythons ran in them."""

    libraries: set[str] = field(default_factory=set)
    pythons: set[str] = field(default_factory=set)


def told_apart(found: Iterable[Difference], own: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the lines that the failure can depend on, and the others. `own` are the packages that the case pins."""
    relevant, other = list[str](), list[str]()
    for text, about in dict.fromkeys(found):
        (relevant if about is None or about in own or _RELEVANT.fullmatch(about) else other).append(text)
    return relevant, other


def differences(recipe: Recipe, found: Attestation) -> Iterator[Difference]:
    """Yield the differences of what was found in an environment from what its lock says. None means exact."""
    lock = read_lock(recipe.lock)
    minor = ".".join(found.python.split(".")[:2])
    for word, said in {"declared": recipe.python, "locked": lock.basis.get("python", recipe.python)}.items():
        if said not in {minor, found.python}:
            about = _OTHER if said.startswith(f"{minor}.") else None
            yield Difference(f"Python: {said} {word}, {found.python} found", about)
    if recipe.use_image:
        yield Difference(f"image: {recipe.use_image} as it stands, its files were not compared", _OTHER)
    versions: dict[str, str] = {canonicalize_name(name): version for name, version in found.packages.items()}
    for pin in lock.pins:
        yield from _difference(pin, versions.pop(pin.name, None))
    relevant = [name for name in versions if _RELEVANT.fullmatch(name)]
    yield from (Difference(f"{name}: not locked, {versions.pop(name)} found", name) for name in relevant)
    if versions:
        listed = one_line(", ".join(map(" ".join, versions.items())), _LISTED)
        yield Difference(f"not locked, and installed: {listed}", _OTHER)
    for each in [*found.strange, *(found.content.strange if found.content else ())]:
        package = each.package and canonicalize_name(each.package)
        yield Difference(f"{package}: {each.text}" if package else each.text, package)


def _difference(locked: Pin, found: str | None) -> Iterator[Difference]:
    if found is None:
        yield Difference(f"{locked.name}: {locked.version} locked, none found", locked.name)
    elif not same_version(locked.version, found):
        build = ", another build of it" if same_version(locked.version, found.split("+")[0]) else ""
        yield Difference(f"{locked.name}: {locked.version} locked, {found} found{build}", locked.name)


def apart(repro: Attestation, fixed: Attestation) -> Iterator[Difference]:
    """Yield what is not alike in the environments of both variants, and is no package."""
    for what, one, other in (("Python", repro.python, fixed.python), ("glibc", repro.glibc, fixed.glibc)):
        if one != other:
            yield Difference(f"{what}: {one} for repro, {other} for fixed", _OTHER)


def strangers(seen: Loaded, *, in_image: bool) -> Iterator[Difference]:
    """Yield what trials loaded or ran that is not of their environment. All libraries of an image are."""
    yield from (Difference(f"{place} ran, which is not the environment's Python") for place in sorted(seen.pythons))
    for path in () if in_image else sorted(seen.libraries):
        if not path.startswith(_ENVIRONMENT) and not _DRIVER.fullmatch(path.rpartition("/")[2]):
            yield Difference(f"{path} was loaded, which is not of the environment")
