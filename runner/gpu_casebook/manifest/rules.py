"""Rules about several values of a manifest at once. Pure. They work on plain data and skip what did not parse."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gpu_casebook.kinds import Variant
from gpu_casebook.manifest.document import Location
from gpu_casebook.manifest.model import TRIALS, Expectation, Manifest, Seconds, pin
from gpu_casebook.reading.findings import Kind
from gpu_casebook.statistics import trials_to_refute
from gpu_casebook.trial import Watch

_FAILURES = ("exception", "signal", "cuda_error", "hang")
_ENDINGS = ("exit_status", "exception", "signal", "cuda_error")
_TIMEOUT = TypeAdapter(Seconds)
_TIMEOUT_S = Manifest.model_fields["timeout"].default
_ANY_FINDING = ("kind", "access", "kernel")
_NOT_LOOKED_FOR = {Kind.LEAK, Kind.UNUSED, Kind.TOOL, Kind.OTHER}


class Breach(NamedTuple):
    location: Location
    what: str


class _Written(NamedTuple):
    """An expectation and where in the manifest it is written."""

    location: Location
    expectation: Expectation


def breaches(data: Any, *, directory: str) -> Iterator[Breach]:
    """Yield every breach of a rule in the plain data of a manifest. `directory` is the name of the case's directory."""
    # A mistake in a variant is found again in each environment, and reported once.
    yield from dict.fromkeys(_breaches(data, directory) if isinstance(data, Mapping) else ())


def _breaches(data: Mapping[str, Any], directory: str) -> Iterator[Breach]:
    if isinstance(data.get("id"), str) and data["id"] != directory:
        yield Breach(("id",), f"{data['id']} is not the name of its directory, {directory}")
    yield from _provenance(data)
    yield from _hardware(data)
    yield from _doubled_requirements(data)
    written = dict(_written(data))
    for location, expectation in written.items():
        yield from _contradiction(location, expectation)
        yield from _other_variant(location, expectation)
        if Variant.FIXED in location:
            for key in _FAILURES:
                if getattr(expectation, key) is not None:
                    yield Breach((*location, key), "is a failure; the fixed variant must end with exit status 0")
            if expectation.exit_status:
                yield Breach((*location, "exit_status"), "the fixed variant must end with exit status 0")
        yield from _sanitizer(location, expectation)
    yield from _sanitized_without_gpu(data, written)
    for name in _environments(data) or ("",):
        merged = [_merged(data, written, name, variant) for variant in Variant]
        yield from _judge(*merged)
        yield from _too_few_trials(data, merged[0])
        yield from _too_little_time(data, name, merged[0])


def _provenance(data: Mapping[str, Any]) -> Iterator[Breach]:
    # Where upstream has not fixed it there is no second version: the fix is in how the release is used.
    if data.get("provenance") != "release" or _dig(data, "upstream", "status") == "open":
        return
    for variant in Variant:
        if isinstance(data.get(variant), Mapping) and not _dig(data, variant, "requirements"):
            yield Breach((variant.value,), "a release case pins the version of each variant: add requirements")
    lists = [_dig(data, variant, "requirements") for variant in Variant]
    if lists[0] and lists[0] == lists[1]:
        yield Breach(("fixed", "requirements"), "are those of repro: a release case needs two versions")


def _hardware(data: Mapping[str, Any]) -> Iterator[Breach]:
    for name, spec in _environments(data).items():
        for key in ("compute_capability", "driver", "share_gpu"):
            value = _dig(spec, key)
            if value is not None and value is not False and spec.get("gpus", 0) == 0:
                yield Breach(("environments", name, key), "asks for a GPU, but gpus is 0; set gpus: 1 or leave it out")


def _doubled_requirements(data: Mapping[str, Any]) -> Iterator[Breach]:
    for name, spec in _environments(data).items():
        location = ("environments", name, "requirements")
        shared: set[str] = set()
        yield from _doubled(location, _dig(spec, "requirements"), shared)
        for variant in Variant:
            yield from _doubled((variant.value, "requirements"), _dig(data, variant, "requirements"), set(shared))


def _doubled(location: Location, requirements: Any, seen: set[str]) -> Iterator[Breach]:
    for index, requirement in enumerate(requirements if isinstance(requirements, list) else []):
        try:
            name = pin(requirement).split("==")[0].split("[")[0]
        except (ValueError, TypeError):
            continue
        if name in seen:
            yield Breach((*location, index), f"{name} is required twice; keep one")
        seen.add(name)


def _contradiction(location: Location, expectation: Expectation) -> Iterator[Breach]:
    if expectation.signal is not None and expectation.exit_status is not None:
        yield Breach((*location, "signal"), "a process ends by a signal or with an exit status; name one")
    if expectation.hang:
        for key in _ENDINGS:
            if getattr(expectation, key) is not None:
                yield Breach((*location, key), "is a way to end, and a script that hangs does not; leave one out")
        if not _discriminates(expectation.hang.stack):
            yield Breach((*location, "hang", "stack"), "matches every stack; name the function that it hangs in")
    for name in expectation.figures:
        if name in [*expectation.differs, *expectation.same]:
            yield Breach((*location, "figures", name), "is named as a figure and as a digest; a line prints one")


def _other_variant(location: Location, expectation: Expectation) -> Iterator[Breach]:
    for variant, keys in ((Variant.REPRO, ("rate", "differs")), (Variant.FIXED, ("same",))):
        for key in keys:
            if variant not in location and getattr(expectation, key):
                yield Breach((*location, key), f"belongs to {variant}")


def _too_few_trials(data: Mapping[str, Any], repro: _Written | None) -> Iterator[Breach]:
    rate, trials = repro and repro.expectation.rate, data.get("trials", TRIALS)
    if repro and rate and isinstance(trials, int):
        needed = trials_to_refute(rate.parts[0][1])
        if trials < needed:
            # With a dozen expected failures, repro and fixed get about the same number of trials.
            better = math.ceil(12 / rate.parts[0][1])
            what = f"{rate} can't be judged in {trials} trials: at least {needed}; write trials: {better} or so"
            own: Location = (*repro.location, "rate")
            yield Breach(own if _dig(data, *own) else ("repro", "expect", "rate"), what)


def _too_little_time(data: Mapping[str, Any], environment: str, repro: _Written | None) -> Iterator[Breach]:
    """Reject a timeout too short to tell a hang from slow progress."""
    if repro is None or repro.expectation.hang is None:
        return
    with suppress(ValidationError):
        timeout_s = _TIMEOUT.validate_python(data.get("timeout", _TIMEOUT_S))
        gpus = bool(_dig(data, "environments", environment, "gpus"))
        watch = Watch.from_second(repro.expectation.hang.after, gpus=gpus)
        if timeout_s < watch.settled_s:
            what = f"is clear after {watch.settled_s:g} s at the earliest, and the timeout is {timeout_s:g} s"
            own: Location = (*repro.location, "hang", "after")
            where = own if _dig(data, *own) else ("repro", "expect", "hang", "after")
            yield Breach(where, f"{what}; raise the timeout")


def _sanitizer(location: Location, expectation: Expectation) -> Iterator[Breach]:
    declared = expectation.sanitizer
    if declared is None:
        return
    place: Location = (*location, "sanitizer")
    if Variant.FIXED in location:
        yield Breach(place, "is a failure; in fixed the tool that repro names must find nothing")
    elif declared.kind in _NOT_LOOKED_FOR:
        yield Breach((*place, "kind"), f"{declared.kind} is nothing that compute-sanitizer is asked for here")
    elif all(getattr(declared, key) is None for key in _ANY_FINDING):
        yield Breach(place, f"names no finding: say which {', '.join(_ANY_FINDING[:-1])} or {_ANY_FINDING[-1]}")


def _sanitized_without_gpu(data: Any, written: Mapping[Location, Expectation]) -> Iterator[Breach]:
    for name, spec in _environments(data).items():
        merged = _merged(data, written, name, Variant.REPRO)
        if merged and merged.expectation.sanitizer and spec.get("gpus", 0) == 0:
            what = "asks compute-sanitizer, which needs a GPU, but gpus is 0; write sanitizer: null in its repro.expect"
            yield Breach(("environments", name), what)


def _judge(repro: _Written | None, fixed: _Written | None) -> Iterator[Breach]:
    if fixed and not _proves(fixed.expectation):
        yield Breach(
            fixed.location, "proves nothing: name a figure or a message that shows that the check ran and passed"
        )
    if repro and not _names_failure(repro.expectation):
        yield Breach(
            repro.location,
            "names no failure: say which exception, signal, cuda_error, hang, message or figures show it",
        )
    if repro and fixed:
        for name in repro.expectation.differs:
            if name not in fixed.expectation.same:
                what = f"fixed must say that {name} is the same in every run; write same: [{name}] in its expect"
                yield Breach((*repro.location, "differs"), what)
    if repro and fixed and repro.expectation.model_copy(update={"rate": None}) == fixed.expectation:
        where = max(fixed.location, repro.location, key=len)
        yield Breach(where, "repro and fixed expect the same, so no trial could tell them apart")


def _proves(expectation: Expectation) -> bool:
    return bool(expectation.figures or expectation.growth or expectation.same or _discriminates(expectation.message))


def _names_failure(expectation: Expectation) -> bool:
    # Status 1 alone is what every uncaught exception ends with, a missing import too.
    return bool(
        any(getattr(expectation, key) for key in _FAILURES)
        or expectation.figures
        or expectation.growth
        or expectation.differs
        or _discriminates(expectation.message)
        or expectation.sanitizer
        or expectation.exit_status not in {None, 0, 1}
    )


def _discriminates(message: str | None) -> bool:
    """Return whether there is a pattern, and not every output matches it."""
    return message is not None and re.search(message, "") is None


def _written(data: Mapping[str, Any]) -> Iterator[tuple[Location, Expectation]]:
    """Yield every expectation of the manifest that parses, with its location."""
    for variant in Variant:
        places: list[Location] = [("environments", name, "expect", variant.value) for name in _environments(data)]
        for location in ((variant.value, "expect"), *places):
            with suppress(ValidationError):
                yield location, Expectation.model_validate(_dig(data, *location))


def _merged(
    data: Mapping[str, Any], written: Mapping[Location, Expectation], environment: str, variant: Variant
) -> _Written | None:
    """Return what the variant must do in an environment, and where that is written, or None if it does not parse."""
    location: Location = (variant.value, "expect")
    place: Location = ("environments", environment, "expect", variant.value)
    base, override = written.get(location), written.get(place)
    if base is None or (override is None and _dig(data, *place) is not None):
        return None
    return _Written(location, base) if override is None else _Written(place, base.overridden_by(override))


def _environments(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    raw = data.get("environments")
    return {name: spec for name, spec in raw.items() if isinstance(spec, Mapping)} if isinstance(raw, Mapping) else {}


def _dig(data: Any, *location: str | int) -> Any:
    """Return the value at `location`, or None if there is none."""
    for part in location:
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data
