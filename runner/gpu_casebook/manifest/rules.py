"""Rules about several values of a manifest at once. Pure. They work on plain data and skip what did not parse."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from failure_signature.bounds import Bound
from failure_signature.expectation import Expectation, Model, Seconds
from failure_signature.kinds import Variant
from failure_signature.reading.findings import Kind, Tool
from failure_signature.statistics import clean_trials_needed, wilson
from gpu_casebook.manifest.document import Location
from gpu_casebook.manifest.model import (
    ALPHA,
    CLEAN_TRIALS,
    DIFFERING,
    EXPECTED,
    MOST_TRIALS,
    TRIALS,
    Alpha,
    CleanTrials,
    Manifest,
    Provenance,
    Trials,
)
from gpu_casebook.pins import CPU_BUILD, pin
from gpu_casebook.trial import Watch

_FAILURES = ("exception", "signal", "cuda_error", "hang")
_ENDINGS = ("exit_status", "exception", "signal", "cuda_error")
BLANK = "TODO(case)"
"""Begins every blank of a new case."""
_ANY_OUTPUT = (
    "error,Error: x,Exception,failed,failure,warning,Traceback,File,line,in <module>,CUDA,CUDA error,RuntimeError,"
    "ValueError,TypeError,device,tensor,size,shape,dtype,type,value,index,memory,kernel,invalid,expected,number,step,"
    "loss,rank,rank 0,done,passed,success,finished,True,False,None,nan"
)
_ANY_STACK = (
    "wait,poll,join,select,sleep,acquire,recv,read,get,result,wait_for,futex_wait,epoll_wait,cond_wait,nanosleep,"
    "pthread_cond_wait,clock_nanosleep,_wait_for_tstate_lock,_shutdown,_python_exit,_exit_function,<module>,main,run,"
    "_bootstrap"
)
"""Functions that are in the stack of any process that waits, for whatever. They and the words above are short, so
that no pattern takes long to be searched in them."""
_LITERALS = 6
"""Characters that a message must have apart from what it leaves open."""
_TIMEOUT = TypeAdapter(Seconds)
_TIMEOUT_S = Manifest.model_fields["timeout"].default
_ACCESSES = {None, Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.LIFETIME, Kind.INVALID_ACCESS}
_HUGE = 1e30
_NOT_LOOKED_FOR = {Kind.LEAK, Kind.UNUSED, Kind.TOOL, Kind.OTHER}


Breach = tuple[Location, str]
"""Where a rule is broken, and what to do about it."""


class _Sampling(Model):
    """What a manifest says of the number of trials."""

    trials: Trials = TRIALS
    alpha: Alpha = ALPHA
    clean_trials: CleanTrials = CLEAN_TRIALS


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
    if isinstance(data, Mapping):
        yield from dict.fromkeys(_breaches(data, directory)) or dict.fromkeys(_alike(data))


def _breaches(data: Mapping[str, Any], directory: str) -> Iterator[Breach]:
    if isinstance(data.get("id"), str) and data["id"] != directory:
        yield ("id",), f"{data['id']} is not the name of its directory, {directory}"
    if data.get("id") == "readme":
        yield ("id",), "readme is the name of the index of the reports; choose another"
    yield from _provenance(data)
    written = dict(_written(data))
    for location, expectation in written.items():
        yield from _contradiction(location, expectation)
        yield from _vague(location, expectation)
        yield from _in_repro(location, expectation) if Variant.REPRO in location else _in_fixed(location, expectation)
    for name, spec in (_environments(data) or {"": {}}).items():
        repro, fixed = (_merged(data, written, name, variant) for variant in Variant)
        yield from _hardware(name, spec, repro)
        yield from _doubled(data, name)
        yield from _doubled_files(data, name)
        yield from _unknown(data, name)
        yield from _other_builds(data, name, spec)
        yield from _judge(repro, fixed)
        if repro:
            yield from _too_few_trials(data, repro)
            yield from _too_little_time(data, spec, repro)


def _provenance(data: Mapping[str, Any]) -> Iterator[Breach]:
    if data.get("provenance") == Provenance.RELEASE_WORKAROUND and not data.get("because"):
        yield ("provenance",), "a work-around is not upstream's fix: say why it is one, in a line because:"
    if data.get("provenance") == Provenance.SOURCES and not any(_files(data, *place) for place in _with_sources(data)):
        yield (
            ("provenance",),
            "a case of upstream's files names them: add sources to an environment, or to both variants",
        )
    if data.get("provenance") != Provenance.RELEASE:
        return
    for variant in Variant:
        if isinstance(data.get(variant), Mapping) and not _dig(data, variant, "requirements"):
            yield (variant.value,), "a release case pins the version of each variant: add requirements"
    lists = [_dig(data, variant, "requirements") for variant in Variant]
    if lists[0] and lists[0] == lists[1]:
        yield ("fixed", "requirements"), "are those of repro: a release case needs two versions"


def _hardware(name: str, spec: Mapping[str, Any], repro: _Written | None) -> Iterator[Breach]:
    if spec.get("capability_from") and not spec.get("compute_capability"):
        yield ("environments", name, "capability_from"), "says where bounds come from, and there are none"
    if not spec or spec.get("gpus", 0) != 0:
        return
    for key in ("compute_capability", "driver", "gpu_memory"):
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


def _doubled_files(data: Mapping[str, Any], environment: str) -> Iterator[Breach]:
    for variant in Variant:
        seen: set[str] = set()
        for place in (("environments", environment), (variant.value,)):
            for location in _files(data, *place):
                name = str(location[-1]).removeprefix("src/")
                if name in seen:
                    yield location, f"{name} is there twice; keep one"
                seen.add(name)


def _with_sources(data: Mapping[str, Any]) -> Iterator[Location]:
    yield from (("environments", name) for name in _environments(data))
    yield from ((variant.value,) for variant in Variant)


def _files(data: Mapping[str, Any], *place: str | int) -> list[Location]:
    """Return where an environment or variant names upstream's files."""
    listed = _dig(data, *place, "sources")
    return [
        (*place, "sources", index, "files", path)
        for index, each in enumerate(listed if isinstance(listed, list) else [])
        if isinstance(each, Mapping) and isinstance(each.get("files"), Mapping)
        for path in each["files"]
        if isinstance(path, str)
    ]


def _unknown(data: Mapping[str, Any], environment: str) -> Iterator[Breach]:
    there = {each.partition("==")[0].partition("[")[0] for each in _pinned(data, environment)}
    location = ("environments", environment, "without_dependencies")
    names = _dig(data, *location)
    for index, name in enumerate(names if isinstance(names, list) else []):
        if isinstance(name, str) and canonicalize_name(name) not in there:
            yield (*location, index), f"{name} is not among the requirements"
    if _dig(data, "environments", environment, "only_files") and not names:
        yield (
            ("environments", environment, "only_files"),
            "are of the packages in without_dependencies; name them there",
        )


def _other_builds(data: Mapping[str, Any], environment: str, spec: Mapping[str, Any]) -> Iterator[Breach]:
    """Yield requirements that the indexes of the environment can't have, and an index that nothing is required from."""
    builds = [each for each in _pinned(data, environment) if "+" in each]
    where = ("environments", environment, "index")
    for each in builds:
        if not each.endswith(CPU_BUILD):
            yield where, f"{each} is on no index that a case may use; pin {each.partition('+')[0]}"
        elif not spec.get("index"):
            yield where, f"{each} is on PyTorch's own index alone; write index: pytorch-cpu"
    if spec.get("index") and not builds:
        yield where, f"nothing is required from it; pin a build such as torch==2.13.0{CPU_BUILD}"
    if spec.get("index") and spec.get("gpus"):
        yield where, "has builds that use no GPU; leave out the index or gpus"


def _pinned(data: Mapping[str, Any], environment: str) -> Iterator[str]:
    """Yield the requirements of an environment and of the variants, in their canonical form."""
    for location in (("environments", environment), *((variant.value,) for variant in Variant)):
        requirements = _dig(data, *location, "requirements")
        for requirement in requirements if isinstance(requirements, list) else []:
            with suppress(ValueError, TypeError):
                yield pin(requirement)


def _contradiction(location: Location, expectation: Expectation) -> Iterator[Breach]:
    if expectation.signal is not None and expectation.exit_status is not None:
        yield (*location, "signal"), "a process ends by a signal or with an exit status; name one"
    if expectation.hang:
        for key in _ENDINGS:
            if getattr(expectation, key) is not None:
                yield (*location, key), "is a way to end, and a script that hangs does not; leave one out"
    for key in ("exception", "cuda_error"):
        if getattr(expectation, key) is not None and expectation.exit_status == 0:
            yield (*location, key), "is a failure, and exit_status 0 is none; leave one out"
    for name in expectation.figures:
        if name in [*expectation.differs, *expectation.same]:
            yield (*location, "figures", name), "is named as a figure and as a digest; a line prints one"


def _vague(location: Location, expectation: Expectation) -> Iterator[Breach]:
    """Yield the patterns that are found where nothing failed."""
    if expectation.hang and (frame := _found_in(expectation.hang.stack, _ANY_STACK)) is not None:
        what = f"matches whatever waits, in {frame}" if frame else "matches every stack"
        yield (*location, "hang", "stack"), f"{what}; name the function that it hangs in"
    if expectation.message is not None:
        word = _found_in(expectation.message, _ANY_OUTPUT)
        if word is not None or len(literals(expectation.message)) < _LITERALS:
            such = f", such as {word!r}" if word else ""
            yield (*location, "message"), f"fits much else{such}; take more of the text"


def waits_anywhere(stack: str) -> bool:
    """Return whether the pattern is found in the stack of any process that waits."""
    return _found_in(stack, _ANY_STACK) is not None


def _in_repro(location: Location, expectation: Expectation) -> Iterator[Breach]:
    declared = expectation.sanitizer
    if expectation.same:
        yield (*location, "same"), "belongs to fixed"
    if declared and declared.kind in _NOT_LOOKED_FOR:
        yield (*location, "sanitizer", "kind"), f"{declared.kind} is nothing that compute-sanitizer is asked for here"
    elif declared and not (declared.kind or declared.access or declared.kernel):
        yield (*location, "sanitizer"), "names no finding: say which kind, access or kernel"
    elif declared and declared.tool is Tool.MEMCHECK and declared.kind in _ACCESSES and not declared.access:
        yield (*location, "sanitizer"), "does not say whether it is a read, a write or an atomic; add access:"


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
    with suppress(ValidationError):
        asked = _Sampling.model_validate({key: data[key] for key in _Sampling.model_fields if key in data})
        if repro.expectation.rate is not None:
            for what in _unlikely(asked, repro.expectation.rate, least=DIFFERING if repro.expectation.differs else 1):
                yield repro.where(data, "rate"), what
        elif asked.trials < (least := DIFFERING if repro.expectation.differs else TRIALS):
            where = ("trials",) if "trials" in data else repro.where(data, "differs")
            yield where, f"{asked.trials} trials are too few for a verdict; write trials: {least} or more"


def _unlikely(asked: _Sampling, rate: Bound, *, least: int) -> Iterator[str]:
    """Say why a failure at this rate can't be judged, or hardly be confirmed, with what the manifest allows."""
    share = rate.parts[0][1]
    needed = max(math.ceil(EXPECTED / share), least)
    if asked.trials < needed:
        # With a dozen expected failures, repro and fixed get about the same number of trials.
        better = f"write trials: {min(max(math.ceil(12 / share), least), MOST_TRIALS)} or so"
        remedy = better if needed <= MOST_TRIALS else f"and {MOST_TRIALS} are the most"
        yield f"{rate} can't be judged in {asked.trials} trials: at least {needed}; {remedy}"
        return
    clean = clean_trials_needed(wilson(share * asked.trials, asked.trials).low, asked.alpha)
    if clean > asked.clean_trials:
        why = f"at that rate, {asked.trials} trials ask for {clean} clean runs of fixed; clean_trials is "
        remedy = f"{asked.clean_trials}: write clean_trials: {math.ceil(1.5 * clean)} or so, or more trials"
        yield f"{rate} can hardly be confirmed: {why}{remedy}"


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
    if fixed and not _names_something(fixed.expectation):
        what = "proves nothing: name a figure with a bound that not every number satisfies, or a message"
        yield fixed.location, what
    if repro and not _names_failure(repro.expectation):
        what = "names no failure: say which exception, signal, cuda_error, hang, message or figures show it"
        yield repro.location, what
    if repro and fixed:
        for name in repro.expectation.differs:
            if name not in fixed.expectation.same:
                what = f"fixed must say that {name} is the same in every run; write same: [{name}] in its expect"
                yield (*repro.location, "differs"), what


def _alike(data: Mapping[str, Any]) -> Iterator[Breach]:
    """Yield where expectations that are right by themselves fit too much: another failure, or the other variant."""
    written = dict(_written(data))
    own = [each for variant in Variant if (each := _merged(data, written, "", variant))]
    for name in _environments(data):
        repro, fixed = (_merged(data, written, name, variant) for variant in Variant)
        if not repro or not fixed:
            continue
        if alone := _type_alone(repro.expectation):
            yield repro.location, f"any {alone} would do: add a message or a figure that tells this one"
        if not _exclusive(repro.expectation, fixed.expectation):
            # What the case's own expectations lack is said there, not in each environment.
            pair = (repro, fixed) if _exclusive(*(each.expectation for each in own)) else own
            what = "one output could be as both repro and fixed expect: give both a figure, in bounds that"
            yield max((each.location for each in reversed(pair)), key=len), f"{what} exclude each other"


def _exclusive(repro: Expectation, fixed: Expectation) -> bool:
    """Return whether no output is as both expect. Messages never exclude each other: an output can have both."""
    grown, level = repro.growth, fixed.growth
    return bool(
        any(BLANK in (each.message or "") for each in (repro, fixed))  # nobody knows yet
        or repro.must_fail
        or repro.sanitizer
        or repro.differs
        or any(bound.excludes(repro.figures[name]) for name, bound in fixed.figures.items() if name in repro.figures)
        or (
            grown
            and level
            and (grown.series, grown.warm_up) == (level.series, level.warm_up)
            and grown.per_step.excludes(level.per_step)
        )
    )


def _names_failure(repro: Expectation) -> bool:
    # Status 1 alone is what every uncaught exception ends with, a missing import too.
    return bool(
        any(getattr(repro, key) for key in _FAILURES)
        or repro.exit_status not in {None, 0, 1}
        or repro.differs
        or repro.sanitizer
        or _names_something(repro)
    )


def _type_alone(repro: Expectation) -> str | None:
    """Return the exception, signal or exit status, if it is all that the expectation names."""
    if repro.cuda_error or repro.hang or repro.differs or repro.sanitizer or _names_something(repro):
        return None
    return repro.exception or repro.signal or f"exit status {repro.exit_status}"


def _names_something(expectation: Expectation) -> bool:
    """Return whether it names what not every output has. A message that is too vague has been reported already."""
    bounds = [*expectation.figures.values(), *([expectation.growth.per_step] if expectation.growth else [])]
    return bool(expectation.message or expectation.same or any(map(_limits, bounds)))


def _limits(bound: Bound) -> bool:
    """Return whether a count or an error can be wrong by it: ">= 0" holds for all of them."""
    return not (bound.holds(0) and bound.holds(_HUGE))


def literals(pattern: str) -> str:
    """Return roughly what of a regular expression must be there as it is."""
    return re.sub(r"\\[A-Za-z]|\[[^\]]*\]|\(\?[a-z]+\)|\\(?=\W)|[.*+?()|^$]", "", pattern)


def _found_in(pattern: str, words: str) -> str | None:
    """Return the first of the words in which the pattern is found, or None."""
    return next((word for word in ("", *words.split(",")) if re.search(pattern, word)), None)


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
