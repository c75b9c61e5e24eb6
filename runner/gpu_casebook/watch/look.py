"""One look at a case with newer releases: what is let go, and what both scripts make of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpu_casebook.console import Console
from gpu_casebook.errors import MachineError
from gpu_casebook.records.watched import Sighting, State
from gpu_casebook.releases.signature import Sign
from gpu_casebook.releases.site import Changes, Place, Site, Unusable
from gpu_casebook.trial import Note


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a look rests on. `quiet` trials of repro say that it does not fail, `proofs` of fixed that the fix holds."""

    case: str
    pinned: Sequence[str]
    quiet: int
    proofs: int
    digest: str
    engine: str
    runner: str
    now: datetime


@dataclass(frozen=True)
class Seen:
    """What the trials of one variant came to."""

    sign: Sign
    told: str
    trials: int


def look(sites: tuple[Site, Site], attempts: Sequence[Changes], ground: Ground, console: Console) -> Sighting:
    """With the first of these changes that can be installed. Raises MachineError where trials can't be had."""
    why = []
    for changes in attempts:
        told = ", ".join(f"{name} {version or 'newest'}" for name, version in changes.items())
        with console.step(f"{ground.case} with {told}") as note:
            try:
                return _tried(sites, changes, ground, note)
            except Unusable as unusable:
                why.append(f"{told}: {unusable}")
    return _sighting(ground, State.CANNOT, "; ".join(why), attempts[0])


def _tried(sites: tuple[Site, Site], changes: Changes, ground: Ground, note: Note) -> Sighting:
    repro, fixed = sites
    with repro.at(changes, note) as place:
        seen, versions = _run(place, ground.quiet), place.versions
    with fixed.at(changes, note) as place:
        proof = _run(place, ground.proofs)
    holds = proof.sign is Sign.QUIET
    state, why = judged(seen, proof)
    pinned = {name: versions[name] for name in ground.pinned if name in versions}
    found = _sighting(ground, state, why, changes)
    return found.model_copy(update={"fix": holds, "versions": pinned, "trials": seen.trials + proof.trials})


def judged(repro: Seen, fixed: Seen) -> tuple[State, str]:
    """A failure is only gone where the fix's own check ran there, and passed."""
    match repro.sign:
        case Sign.SHOWS:
            return State.STILL, repro.told
        case Sign.QUIET if fixed.sign is Sign.QUIET:
            return State.FIXED, f"{repro.trials} trials without the failure: {repro.told}"
        case Sign.QUIET:
            return State.OTHERWISE, f"repro keeps quiet, but fixed gives no proof: {fixed.told}"
        case _:
            return State.OTHERWISE, repro.told


def _run(place: Place, quiet: int) -> Seen:
    """Until a trial is not quiet, or there were enough of them."""
    for number in range(1, quiet + 1):
        found = place.look()
        if found.sign is Sign.SPOILED:
            raise MachineError(f"a trial was spoiled again and again: {found.told}; mend that, and watch again")
        if found.sign is not Sign.QUIET or number == quiet:
            return Seen(found.sign, found.told, number)
    raise ValueError("at least one trial is needed")


def _sighting(ground: Ground, state: State, why: str, changes: Changes) -> Sighting:
    return Sighting(
        state=state,
        why=why,
        moved=list(changes),
        since=ground.now,
        last=ground.now,
        engine=ground.engine,
        digest=ground.digest,
        runner=ground.runner,
    )
