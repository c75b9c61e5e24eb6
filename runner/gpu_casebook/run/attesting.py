"""What is really in an environment, as a trial finds it from inside, compared with what is locked.

`gpu_casebook.guest.attest` looks. To read all files takes between seconds and a minute, on all cores. So the result is
kept in the user's cache. If several runs begin at once in one environment, one of them reads the files, and the others
wait. Engines make sure that environments of one key have the same files, also before and after each trial.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name
from platformdirs import user_cache_path
from pydantic import ValidationError

from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from failure_signature.text import one_line
from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.guard import Guard
from gpu_casebook.errors import CasebookError, EngineError
from gpu_casebook.evidence import Attestation, Content
from gpu_casebook.guest import script
from gpu_casebook.locking import sole
from gpu_casebook.packages.lock import Pin, read_lock, same_version
from gpu_casebook.pins import SOURCES
from gpu_casebook.run.plan import Plan
from gpu_casebook.trial import Limits, Note, Recipe, TrialRequest

_LIMITS = Limits(timeout_s=900.0, output_bytes=4 * 2**20)
_RELEVANT = re.compile(rf"torch|triton|nvidia-.*|{SOURCES}")
_DRIVER = re.compile(r"lib(cuda|cudadebugger|nvidia-.*|nvcuvid)\.so.*")
_ENVIRONMENT = "/env/"
"""As the venv engine calls it."""
_LISTED = 300
_UNRELATED = ""
"""What a difference is about that can't affect the failure."""


@dataclass(frozen=True)
class AttestedEnvironment:
    """A prepared environment and what was found in it."""

    prepared: Prepared
    recipe: Recipe
    attestation: Attestation


def attested(
    plan: Plan, guard: Guard, files: Mapping[str, bytes], prepared: Prepared, recipe: Recipe, *, say: Note
) -> AttestedEnvironment:
    """Look into an environment. `files` are those that a trial gets. Raises EngineError if that can't be done.

    `say` is told if this has to wait for another run, which reads the files.
    """
    look = partial(_look, plan, guard, files, prepared)
    if recipe.use_image:
        return AttestedEnvironment(prepared, recipe, look("versions"))
    kept = user_cache_path("casebook") / "attested" / f"{hashlib.sha256(prepared.key.encode()).hexdigest()[:16]}.json"
    known = _known(kept)
    if known is None:
        why = f"waiting for another run, which checks the files of environment {plan.environment}"
        # A run that holds GPUs does not wait here: the other run may be waiting for one of these GPUs.
        with nullcontext() if guard.holds else sole(kept.with_suffix(".lock"), say, why):
            known = _known(kept)
            if known is None:
                found = look("files")
                if found.content:
                    found.content.write(kept)
                return AttestedEnvironment(prepared, recipe, found)
    return AttestedEnvironment(prepared, recipe, look("versions").model_copy(update={"content": known}))


def _known(kept: Path) -> Content | None:
    with suppress(CasebookError):  # it is not there, or of another version
        return Content.read(kept)
    return None


def _look(plan: Plan, guard: Guard, files: Mapping[str, bytes], prepared: Prepared, what: str) -> Attestation:
    path = script("attest")
    request = TrialRequest(
        files={**files, path.name: path.read_bytes()},
        arguments=["-I", "-S", path.name, what],
        limits=_LIMITS,
        variables=plan.spec.variables,
        gpus=plan.gpus,
    )
    result = guard.look(prepared, request)
    if result.exit_status != 0:
        raise EngineError(f"the environment can't be inspected: {_failure(result)}")
    return parse(result.stdout)


def parse(stdout: str) -> Attestation:
    """Parse what attest.py printed, ignoring what an image's start-up printed around it. Raises EngineError."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return Attestation.model_validate_json(line)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise EngineError(f"the environment can't be inspected: its attestation is broken: {why}") from None
    raise EngineError("the environment can't be inspected: it printed no attestation")


def _failure(result: TrialResult) -> str:
    if result.infra:
        return result.infra
    said = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
    return f"its Python ended with {result.signal or f'exit status {result.exit_status}'}: {said}"


class Difference(NamedTuple):
    """One line of drift. `about` is a package's canonical name; None if it affects all that a trial runs."""

    text: str
    about: str | None = None

    def of(self, variant: str) -> "Difference":
        return self._replace(text=f"{variant}: {self.text}")


@dataclass
class Loaded:
    """Which CUDA libraries trials of one variant had loaded, and which Pythons of other environments they ran."""

    libraries: set[str] = field(default_factory=set)
    pythons: set[str] = field(default_factory=set)


def drift(
    plan: Plan, places: Mapping[Variant, AttestedEnvironment], loaded: Mapping[Variant, Loaded]
) -> Iterator[Difference]:
    """Yield each difference between what a run had and what its locks say. No difference means exact."""
    repro, fixed = (places[variant] for variant in Variant)
    if repro is fixed:
        yield from differences(repro.recipe, repro.attestation)
    else:
        for variant, place in places.items():
            yield from (each.of(variant) for each in differences(place.recipe, place.attestation))
        yield from apart(repro.attestation, fixed.attestation)
    if path := plan.spec.variables.get("LD_LIBRARY_PATH"):
        yield Difference(f"the variable LD_LIBRARY_PATH is {path}")
    for variant, seen in loaded.items():
        yield from (each.of(variant) for each in strangers(seen, in_image=repro.prepared.image is not None))


def by_relevance(found: Iterable[Difference], own: Collection[str]) -> tuple[list[str], list[str]]:
    """Return two lists: lines that the failure can depend on, and others. `own` are the packages that the case pins."""
    relevant, other = list[str](), list[str]()
    for text, about in dict.fromkeys(found):
        (relevant if about is None or about in own or _RELEVANT.fullmatch(about) else other).append(text)
    return relevant, other


def differences(recipe: Recipe, found: Attestation) -> Iterator[Difference]:
    """Yield each difference between what was found in an environment and what its lock says."""
    lock = read_lock(recipe.lock)
    minor = ".".join(found.python.split(".")[:2])
    for word, said in {"declared": recipe.python, "locked": lock.basis.get("python", recipe.python)}.items():
        if said not in {minor, found.python}:
            about = _UNRELATED if said.startswith(f"{minor}.") else None
            yield Difference(f"Python: {said} {word}, {found.python} found", about)
    if recipe.use_image:
        yield Difference(f"image: {recipe.use_image} as it stands, its files were not compared", _UNRELATED)
    if recipe.over:
        yield Difference(f"put over the lock: {', '.join(Path(each).name for each in recipe.over)}")
    versions: dict[str, str] = {canonicalize_name(name): version for name, version in found.packages.items()}
    for pin in lock.pins:
        yield from _difference(pin, versions.pop(pin.name, None))
    relevant = [name for name in versions if _RELEVANT.fullmatch(name)]
    yield from (Difference(f"{name}: not locked, {versions.pop(name)} found", name) for name in relevant)
    if versions:
        listed = one_line(", ".join(map(" ".join, versions.items())), _LISTED)
        yield Difference(f"not locked, and installed: {listed}", _UNRELATED)
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
    """Yield how the environments of the two variants differ in other things than packages."""
    for what, one, other in (("Python", repro.python, fixed.python), ("glibc", repro.glibc, fixed.glibc)):
        if one != other:
            yield Difference(f"{what}: {one} for repro, {other} for fixed", _UNRELATED)


def strangers(seen: Loaded, *, in_image: bool) -> Iterator[Difference]:
    """Yield what trials loaded or ran from outside of their environment. In an image, all libraries belong to it."""
    yield from (Difference(f"{place} ran, which is not the environment's Python") for place in sorted(seen.pythons))
    for path in () if in_image else sorted(seen.libraries):
        if not path.startswith(_ENVIRONMENT) and not _DRIVER.fullmatch(path.rpartition("/")[2]):
            yield Difference(f"{path} was loaded, which is not of the environment")
