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
_NOT_LOOKED_FOR = {Kind.LEAK, Kind.UNUSED, Kind.TOOL, Kind.OTHER}


Breach = tuple[Location, str]
"""Where a rule is broken, and what to do about it."""


class _Written(NamedTuple):
    """An expectation and where in the manifest it is written."""

    location: Location
    expectation: Expectation

    def where(self, data: Mapping[str, Any], *keys: str) -> Location:
        """Return where a key of repro's expectation is written: in that of an environment, or in the case's own."""
        own = (*self.location, *keys)
        return own if _dig(data, *own) else ("repro", "expect", *keys)


def breaches(data: Any, *, directory: str) -> Iterator[Breach]:
    """Yield every breach of a rule in the plain data of a manifest. `directory` is the name of the case's directory."""
    # A mistake in a variant is found again in each environment, and reported once.
    yield from dict.fromkeys(_breaches(data, directory) if isinstance(data, Mapping) else ())


def _breaches(data: Mapping[str, Any], directory: str) -> Iterator[Breach]:
    if isinstance(data.get("id"), str) and data["id"] != directory:
        yield ("id",), f"{data['id']} is not the name of its directory, {directory}"
    if data.get("id") == "readme":
        yield ("id",), "readme is the name of the index of the reports; choose another"
    yield from _provenance(data)
    written = dict(_written(data))
    for location, expectation in written.items():
        yield from _contradiction(location, expectation)
        yield from _in_repro(location, expectation) if Variant.REPRO in location else _in_fixed(location, expectation)
    for name, spec in (_environments(data) or {"": {}}).items():
        repro, fixed = (_merged(data, written, name, variant) for variant in Variant)
        yield from _hardware(name, spec, repro)
        yield from _doubled(data, name)
        yield from _judge(repro, fixed)
        if repro:
            yield from _too_few_trials(data, repro)
            yield from _too_little_time(data, spec, repro)


def _provenance(data: Mapping[str, Any]) -> Iterator[Breach]:
    # Where upstream has not fixed it there is no second version: the fix is in how the release is used.
    if data.get("provenance") != "release" or _dig(data, "upstream", "status") == "open":
        return
    for variant in Variant:
        if isinstance(data.get(variant), Mapping) and not _dig(data, variant, "requirements"):
            yield (variant.value,), "a release case pins the version of each variant: add requirements"
    lists = [_dig(data, variant, "requirements") for variant in Variant]
    if lists[0] and lists[0] == lists[1]:
        yield ("fixed", "requirements"), "are those of repro: a release case needs two versions"


def _hardware(name: str, spec: Mapping[str, Any], repro: _Written | None) -> Iterator[Breach]:
    if not spec or spec.get("gpus", 0) != 0:
        return
    for key in ("compute_capability", "driver", "share_gpu"):
        if spec.get(key):
            yield ("environments", name, key), "asks for a GPU, but gpus is 0; set gpus: 1 or leave it out"
    if repro and repro.expectation.sanitizer:
        what = "asks compute-sanitizer, which needs a GPU, but gpus is 0; write sanitizer: null in its repro.expect"
        yield ("environments", name), what


def _doubled(data: Mapping[str, Any], environment: str) -> Iterator[Breach]:
    for variant in Variant:
        seen: set[str] = set()
        for location in (("environments", environment, "requirements"), (variant.value, "requirements")):
            requirements = _dig(data, *location)
            for index, requirement in enumerate(requirements if isinstance(requirements, list) else []):
                with suppress(ValueError, TypeError):
                    package = pin(requirement).split("==")[0].split("[")[0]
                    if package in seen:
                        yield (*location, index), f"{package} is required twice; keep one"
                    seen.add(package)


def _contradiction(location: Location, expectation: Expectation) -> Iterator[Breach]:
    if expectation.signal is not None and expectation.exit_status is not None:
        yield (*location, "signal"), "a process ends by a signal or with an exit status; name one"
    if expectation.hang:
        for key in _ENDINGS:
            if getattr(expectation, key) is not None:
                yield (*location, key), "is a way to end, and a script that hangs does not; leave one out"
        if not _discriminates(expectation.hang.stack):
            yield (*location, "hang", "stack"), "matches every stack; name the function that it hangs in"
    for name in expectation.figures:
        if name in [*expectation.differs, *expectation.same]:
            yield (*location, "figures", name), "is named as a figure and as a digest; a line prints one"


def _in_repro(location: Location, expectation: Expectation) -> Iterator[Breach]:
    declared = expectation.sanitizer
    if expectation.same:
        yield (*location, "same"), "belongs to fixed"
    if declared and declared.kind in _NOT_LOOKED_FOR:
        yield (*location, "sanitizer", "kind"), f"{declared.kind} is nothing that compute-sanitizer is asked for here"
    elif declared and not (declared.kind or declared.access or declared.kernel):
        yield (*location, "sanitizer"), "names no finding: say which kind, access or kernel"


def _in_fixed(location: Location, expectation: Expectation) -> Iterator[Breach]:
    for key in ("rate", "differs"):
        if getattr(expectation, key):
            yield (*location, key), "belongs to repro"
    for key in _FAILURES:
        if getattr(expectation, key) is not None:
            yield (*location, key), "is a failure; the fixed variant must end with exit status 0"
    if expectation.exit_status:
        yield (*location, "exit_status"), "the fixed variant must end with exit status 0"
    if expectation.sanitizer:
        yield (*location, "sanitizer"), "is a failure; in fixed the tool that repro names must find nothing"


def _too_few_trials(data: Mapping[str, Any], repro: _Written) -> Iterator[Breach]:
    rate, trials = repro.expectation.rate, data.get("trials", TRIALS)
    if rate and isinstance(trials, int) and trials < (needed := trials_to_refute(rate.parts[0][1])):
        # With a dozen expected failures, repro and fixed get about the same number of trials.
        better = math.ceil(12 / rate.parts[0][1])
        what = f"{rate} can't be judged in {trials} trials: at least {needed}; write trials: {better} or so"
        yield repro.where(data, "rate"), what


def _too_little_time(data: Mapping[str, Any], spec: Mapping[str, Any], repro: _Written) -> Iterator[Breach]:
    """Reject a timeout too short to tell a hang from slow progress."""
    if repro.expectation.hang is None:
        return
    with suppress(ValidationError):
        timeout_s = _TIMEOUT.validate_python(data.get("timeout", _TIMEOUT_S))
        watch = Watch.from_second(repro.expectation.hang.after, gpus=bool(spec.get("gpus")))
        if timeout_s < watch.settled_s:
            what = f"is clear after {watch.settled_s:g} s at the earliest, and the timeout is {timeout_s:g} s"
            yield repro.where(data, "hang", "after"), f"{what}; raise the timeout"


def _judge(repro: _Written | None, fixed: _Written | None) -> Iterator[Breach]:
    if fixed and not _proves(fixed.expectation):
        what = "proves nothing: name a figure or a message that shows that the check ran and passed"
        yield fixed.location, what
    if repro and not _names_failure(repro.expectation):
        what = "names no failure: say which exception, signal, cuda_error, hang, message or figures show it"
        yield repro.location, what
    if repro and fixed:
        for name in repro.expectation.differs:
            if name not in fixed.expectation.same:
                what = f"fixed must say that {name} is the same in every run; write same: [{name}] in its expect"
                yield (*repro.location, "differs"), what
        if repro.expectation.model_copy(update={"rate": None}) == fixed.expectation:
            where = max(fixed.location, repro.location, key=len)
            yield where, "repro and fixed expect the same, so no trial could tell them apart"


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
