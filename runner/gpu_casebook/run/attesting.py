"""Looks at an environment from inside, as a trial would find it: `gpu_casebook.guest.attest`, and what is kept of it.

Reading all files of an environment takes seconds to a minute. So what was found is kept in the user's cache with a
digest over size, inode and times of every file: while that stays the same, for any run, nothing is read again.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from platformdirs import user_cache_path

from gpu_casebook.engines.base import Prepared
from gpu_casebook.engines.guard import Guard
from gpu_casebook.errors import CasebookError, EngineError
from gpu_casebook.evidence import Attestation, Content, Strange
from gpu_casebook.guest import attest as guest
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.record import AttestedEnvironment, told
from gpu_casebook.trial import Limits, Recipe, TrialRequest, TrialResult

_LIMITS = Limits(timeout_s=900.0, output_bytes=4 * 2**20)
_WRITTEN = Strange(text="files of packages were written while the trials ran")


@dataclass(frozen=True)
class Attesting:
    """`files` are those that a trial gets."""

    plan: Plan
    guard: Guard
    files: Mapping[str, bytes]

    def look(self, prepared: Prepared, recipe: Recipe) -> AttestedEnvironment:
        """Raises EngineError where the environment can't be inspected."""
        if recipe.use_image:
            found = told(self._ask(prepared, ["versions"], self.plan.gpus), Attestation)
            return AttestedEnvironment(prepared, recipe, found)
        known = _known(prepared)
        found = told(self._ask(prepared, ["files", *_state(known)], self.plan.gpus), Attestation)
        if found.content:
            found = found.model_copy(update={"content": _settled(prepared, known, found.content)})
        return AttestedEnvironment(prepared, recipe, found)

    def again(self, place: AttestedEnvironment) -> AttestedEnvironment:
        """Return what is there after the trials. They can't write to an image. Raises as `look`."""
        before = place.attestation.content
        if place.prepared.image or not before:
            return place
        found = told(self._ask(place.prepared, ["content", *_state(before)]), Content)
        if found.state == before.state:
            return place
        strange = [*place.attestation.strange, _WRITTEN]
        changed = {"strange": strange, "content": _settled(place.prepared, before, found)}
        return replace(place, attestation=place.attestation.model_copy(update=changed))

    def _ask(self, prepared: Prepared, words: Sequence[str], gpus: Sequence[int] = ()) -> str:
        path = Path(guest.__file__)
        request = TrialRequest(
            files={**self.files, path.name: path.read_bytes()},
            arguments=["-I", "-S", path.name, *words],
            limits=_LIMITS,
            variables=self.plan.spec.variables,
            gpus=gpus,
        )
        result = self.guard.run(prepared, request)
        if result.exit_status != 0:
            raise EngineError(f"the environment can't be inspected: {_failure(result)}")
        return result.stdout


def _place(prepared: Prepared) -> Path:
    name = hashlib.sha256(f"{prepared.key}\0{prepared.python}".encode()).hexdigest()[:16]
    return user_cache_path("casebook") / "attested" / f"{name}.json"


def _known(prepared: Prepared) -> Content | None:
    with suppress(CasebookError):  # it is not there, or of another version
        return Content.read(_place(prepared))
    return None


def _state(known: Content | None) -> list[str]:
    return [known.state] if known else []


def _settled(prepared: Prepared, known: Content | None, found: Content) -> Content:
    """Return what was known where nothing was read again; keep what is new."""
    if known and found.files is None:
        return known
    found.write(_place(prepared))
    return found


def _failure(result: TrialResult) -> str:
    if result.infra:
        return result.infra
    said = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()[-1]
    return f"its Python ended with {result.signal or f'exit status {result.exit_status}'}: {said}"
