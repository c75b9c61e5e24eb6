"""What real trials of a script showed -> the expectation to propose, for the author to confirm. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import PurePath
from typing import Any, NamedTuple

from casebook_workbench.author.draft import Proposal
from failure_signature.bounds import Bound
from failure_signature.expectation import Expectation, Growth
from failure_signature.judging import infra
from failure_signature.judging.description import ending, telling_line
from failure_signature.judging.outcome import growth, observe
from failure_signature.judging.signature import Sign, Signature
from failure_signature.kinds import Failure, Variant
from failure_signature.reading import stacks
from failure_signature.result import TrialResult
from failure_signature.text import one_line, without_escapes
from failure_signature.trials import Observation
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.rules import BLANK, waits_anywhere

FIGURES = 12
NO_ERROR = "< 1e-5"
"""What an error is proposed to be when nothing is wrong: float32 against a reference in float64."""
SMALL = 1e-4
EXACT = 1e15
"""Whole numbers below are themselves as a float."""
_SCRIPTS = {f"{variant}.py" for variant in Variant}
_WRAPPERS = {"wrapper", "inner", "wrapped", "__call__"}
"""Names that decorated functions of any library have."""

_COMPILING = re.compile(
    r"triton\.compiler|CompilationError|BackendCompilerFailed|InductorError|PTXASError|torch\._dynamo"
)
_COMPILER_WORDS = re.compile(r"\bptxas\b|\bnvcc\b|PassManager::run failed|Error building extension")
_LAUNCH = {"cudaErrorInvalidConfiguration", "cudaErrorLaunchOutOfResources", "cudaErrorInvalidValue"}
_LAUNCH_WORDS = re.compile(r"OutOfResources|out of resource: ")
_ACCESS = {
    "cudaErrorIllegalAddress",
    "cudaErrorMisalignedAddress",
    "cudaErrorInvalidAddressSpace",
    "cudaErrorInvalidPc",
    "cudaErrorAssert",
    "cudaErrorLaunchFailure",
}


def _named(words: str) -> re.Pattern[str]:
    """Find one of these words in the name of a figure."""
    return re.compile(rf"(?:^|[_.-])(?:{words})(?:$|[_.-])", re.IGNORECASE)


_ERROR = _named("err|error|diff|difference|delta|deviation|off_by")
_NON_FINITE = _named("nans?|infs?|non_?finite|not_finite")
_MEASURE = _named("over|ratio|factor|scale|mean|norm|loss")
LENGTH = 160
"""Characters of a message that are taken: enough to know it by, and what comes after tends to vary."""

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_VOLATILE = {
    "address": (r"0x[0-9a-fA-F]+", "0x[0-9a-fA-F]+"),
    "uuid": (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "[0-9a-f-]+"),
    "path": (r"(?<![\w.:/])(?:/[\w.+@~-]+){2,}/?", r"/\S+"),
    "date": (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?Z?)?", r"\d[\d:.,TZ -]*"),
    "time": (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", r"\d[\d:.,]*"),
    "host": (r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b", r"\d[\d.:]*"),
    "number": (r"(?P<kept>\b(?i:pid|process|thread|port)[ :=#]{1,2})\d{2,}\b", r"\d+"),
    "size": (r"\b\d+(?:\.\d+)?(?= ?(?:[KMGT]i?B|bytes|ms|us|seconds|minutes|s)\b)", r"\d[\d.]*"),
    "decimal": (r"\b\d+\.\d{3,}(?:e[+-]?\d+)?\b", r"\d[\d.e+-]*"),
}
"""What differs from run to run in a message: how to find it, and the regular expression that leaves it open."""
_ANY_VOLATILE = re.compile("|".join(f"(?P<{kind}>{found})" for kind, (found, _) in _VOLATILE.items()))


def propose(results: Sequence[TrialResult], name: str) -> Proposal:
    """Return what to declare after trials of the script `name`, which is to show the failure.

    Raises UsageError if it can't be a case's script: it asks for input or arguments, or does not come to an end.
    """
    trials = [_Seen(observe(result), result) for result in results]
    _refuse(trials, name)
    end = one_line(ending(trials[0].seen), 160)
    if remark := next(filter(None, map(_not_the_bug, trials)), None):
        return Proposal(seen=end, remarks=[remark])
    showing = _showing(trials)
    first = showing[0].seen
    end = one_line(ending(first), 160)
    bounds = {} if first.hung else _figures(showing) | _digests(showing) | ({} if first.failed else _growth(showing))
    repro = _failure(showing) | bounds
    if not repro:
        shown = f"{name} ended with {end}, and no figure that it printed can be bounded, so nothing shows the failure"
        return Proposal(seen=end, remarks=[f"{shown}: let it raise, or print a line name=value", *_remarks(first)])
    fixed = _clean(first) | _level(repro)
    remarks = _remarks(first)
    if share := _share(len(showing), len(trials)):
        remarks.append(f"it failed in {len(showing)} of {len(trials)} trials, so a rate is proposed: measure it longer")
    return Proposal(
        failure=Failure.RACE if share or "differs" in repro else kind(showing[0], grows="growth" in repro),
        repro=repro | share,
        fixed=fixed,
        seen=end if first.failed else _listed(first.figures, _wrong(first.figures, fixed)) or _grown(repro) or end,
        remarks=remarks,
        figures=first.figures,
        ranges=_ranges(showing),
        trials=math.ceil(12 / float(share["rate"][2:])) if share else None,
    )


def proof(results: Sequence[TrialResult], name: str, failing: Proposal) -> Proposal:
    """Return what to declare, after trials of the fixed variant, as the proof that its check ran and passed.

    `failing` is what trials of repro gave. A figure that both have in common gets the same bound.
    """
    trials = [_Seen(observe(result), result) for result in results]
    _refuse(trials, name)
    seen = next((each.seen for each in trials if each.seen.failed), trials[0].seen)
    end = one_line(ending(seen), 160)
    if seen.failed:
        why = _not_the_bug(trials[0])
        return Proposal(seen=end, remarks=[why or f"{name} is to end with exit status 0, and ended otherwise: {end}"])
    fixed = _figures(trials, failing.repro.get("figures", {})) | _level(failing.repro)
    remarks = [] if fixed else [f"{name} printed no figure, so nothing proves that its check ran"]
    wrong = _wrong(failing.figures, fixed)
    if fixed and not wrong and failing.repro.keys() == {"figures"}:
        remarks.append(f"every figure that repro.py printed would do for {name} too, so nothing tells them apart")
    shown = _listed(seen.figures, wrong) or end
    return Proposal(fixed=fixed, seen=shown, remarks=remarks, figures=seen.figures, ranges=_ranges(trials))


def told_apart(failing: Proposal, passed: Proposal) -> tuple[Proposal, Proposal]:
    """Return both, with narrower bounds if the figures of one would do for the other."""
    if failing.repro.keys() != {"figures"} or not passed.fixed.get("figures"):
        return failing, passed
    repro, fixed = dict(failing.repro["figures"]), dict(passed.fixed["figures"])
    both = repro.keys() & fixed.keys()
    if not any(Bound.parse(repro[name]).excludes(Bound.parse(fixed[name])) for name in both):
        for name in both:
            here, there = failing.ranges[name], passed.ranges[name]
            gap = max(here[0] - there[1], there[0] - here[1])
            if gap > 0 and _ERROR.search(name) and there[1] < here[0]:
                middle = math.sqrt(max(there[1], here[0] / 100) * here[0])
                repro[name], fixed[name] = f"> {middle:.2g}", f"< {middle:.2g}"
            elif gap > 0:
                repro[name], fixed[name] = (_between(low - gap / 4, high + gap / 4) for low, high in (here, there))
    failing = replace(failing, repro={"figures": repro})
    passed = replace(passed, fixed={**passed.fixed, "figures": fixed})
    return replace(failing, seen=_listed(failing.figures, _wrong(failing.figures, passed.fixed))), passed


def agree(results: Sequence[TrialResult]) -> bool:
    """Return whether all of these trials show the failure, or none does."""
    trials = [_Seen(observe(result), result) for result in results]
    return len(_showing(trials)) == len(trials)


class _Seen(NamedTuple):
    """One trial: what can be read off it, and the trial."""

    seen: Observation
    result: TrialResult


def _showing(trials: Sequence[_Seen]) -> Sequence[_Seen]:
    """Return the trials that show the failure in one way, the commonest, or all if none shows it by itself."""
    ends = [repr(_end(seen)) if seen.failed else _wrong(seen.figures, _clean(seen)) and "wrong" for seen, _ in trials]
    common = Counter(filter(None, ends)).most_common(1)
    return [each for each, end in zip(trials, ends, strict=True) if end == common[0][0]] if common else trials


def _share(showing: int, trials: int) -> dict[str, str]:
    """Return the rate to declare if the failure did not come in each trial: half of what was seen."""
    return {"rate": f">= {max(showing / trials / 2, 0.05):.1g}"} if showing < trials else {}


def _wrong(figures: Mapping[str, float], fixed: Mapping[str, Any]) -> list[str]:
    """Return the names of the figures that fail what the fixed variant is held to."""
    bounds = {name: Bound.parse(bound) for name, bound in fixed.get("figures", {}).items()}

    def fits(name: str, value: float) -> bool:
        return math.isfinite(value) and (name not in bounds or bounds[name].holds(value))

    return [name for name, value in figures.items() if not fits(name, value)]


def _listed(figures: Mapping[str, float], names: Sequence[str]) -> str:
    """Return these figures on one line, or all of them if none is named."""
    shown = {name: figures[name] for name in names if name in figures} or figures
    return one_line(", ".join(f"{name}={value:.6g}" for name, value in shown.items()), 160)


def _refuse(trials: Iterable[_Seen], name: str) -> None:
    """Raise UsageError for a script that can't be a case's as it stands."""
    for seen, result in trials:
        _refuse_one(seen, result, name)


def _refuse_one(seen: Observation, result: TrialResult, name: str) -> None:
    if seen.exception == "EOFError" and "reading a line" in (seen.message or ""):
        what = "asks for input, and a trial has none"
        raise UsageError(f"{name} {what}: put the values into the script, or leave the trial out with --no-trial")
    usage = next((line for line in result.stderr.splitlines() if line.startswith("usage: ")), None)
    if seen.exit_status == 2 and usage:
        complaint = one_line(result.stderr.strip().rpartition("\n")[2], 120)
        what = f"wants arguments, and a trial gives none ({complaint})"
        raise UsageError(f"{name} {what}: put their values into the script")
    if seen.timed_out and not seen.hung:
        still = f"{name} still ran, and got on, after {result.duration_s:.0f} s"
        raise UsageError(f"{still}: give it an end, or more time with --timeout")


def _not_the_bug(trial: _Seen) -> str | None:
    seen, result = trial
    if result.infra:
        return f"the trial could not be run: {result.infra}"
    if seen.exception in {"ModuleNotFoundError", "ImportError"}:
        return f"the script lacks a package here, so this trial says nothing: {one_line(seen.message or '', 120)}"
    blamed = infra.blame(f"{result.stderr}\n{result.stdout}\n{seen.message or ''}") if seen.failed else None
    if blamed or "not compiled with CUDA enabled" in (seen.message or ""):
        return f"this trial says nothing, as the machine is to blame for its end: {blamed or 'this torch has no CUDA'}"
    return None


def kind(trial: _Seen, *, grows: bool) -> Failure:  # noqa: PLR0911 - a list of signs, the surest first
    """Return the kind of failure that this looks like."""
    seen, result = trial
    said = f"{seen.exception or ''}\n{seen.message or ''}\n{without_escapes(result.stderr)}"
    if seen.hung:
        return Failure.HANG
    if seen.cuda_error in _ACCESS:
        return Failure.ILLEGAL_ACCESS
    if seen.cuda_error in _LAUNCH or (seen.failed and _LAUNCH_WORDS.search(said)):
        return Failure.LAUNCH_ERROR
    if seen.exception and (_COMPILING.search(seen.exception) or _COMPILER_WORDS.search(seen.message or "")):
        return Failure.COMPILE_ERROR
    if seen.signal or seen.out_of_memory:
        return Failure.CRASH
    by_figures = not seen.failed or seen.exception == "AssertionError"
    if by_figures and any(
        not math.isfinite(it) or (it and _NON_FINITE.search(name)) for name, it in seen.figures.items()
    ):
        return Failure.NON_FINITE
    if grows:
        return Failure.LEAK
    return Failure.WRONG_NUMBERS if seen.figures and by_figures else Failure.EXCEPTION


def _end(seen: Observation) -> dict[str, Any]:
    """Return how it ended, if that was badly; without the message, which may differ."""
    if seen.hung:
        return {"hang": True}
    found: dict[str, Any] = {}
    if seen.signal:
        found["signal"] = seen.signal
    if seen.exception:
        found["exception"] = seen.exception
    if seen.cuda_error and seen.failed:
        found["cuda_error"] = seen.cuda_error
    if not found and seen.exit_status not in {0, None}:
        found["exit_status"] = seen.exit_status
    return found


def _failure(trials: Sequence[_Seen]) -> dict[str, Any]:
    """Return what to declare of how these ended, if that was badly."""
    seen = trials[0].seen
    if seen.hung:
        after = f"{max(1, round(seen.hung_after_s or 20)):d}s"
        return {"hang": {"after": after, "stack": "|".join(_places(seen)) or BLANK}}
    found = _end(seen)
    lines = [telling_line(each.message or "") for each, _ in trials]
    if len({*map(pattern, lines)}) > 1:  # taken up to the first word in which they differ
        words = zip(*(line.split(" ") for line in lines), strict=False)
        lines = [" ".join(each[0] for each in takewhile(lambda each: len({*each}) == 1, words))]
    if "exception" in found and (message := pattern(lines[0])):
        found["message"] = message
    return found


def _places(seen: Observation) -> Iterator[str]:
    """Yield where each process hangs that waits for no other one: the innermost function of the script's own.

    A name that any process waits in tells nothing; then what the script calls there is taken.
    """
    found: dict[str, None] = {}
    for stack in stacks.that_matter(seen.stacks):
        frames = stacks.frames(stack)
        names = [name.rpartition(".")[2] for name, _ in frames]
        own = [at for at, (_, file) in enumerate(frames) if PurePath(file).name in _SCRIPTS]
        places = [names[at] for at in own] + names[: own[0]][::-1] if own else names
        telling = (name for name in places if not waits_anywhere(re.escape(name)) and name not in _WRAPPERS)
        found |= dict.fromkeys(map(re.escape, islice(telling, 1)))
    yield from found


def _ranges(trials: Sequence[_Seen]) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value of each figure that all of the trials printed, and that is a number."""
    names = [name for name in trials[0].seen.figures if all(name in seen.figures for seen, _ in trials)]
    values = {name: [seen.figures[name] for seen, _ in trials] for name in names}
    return {name: (min(each), max(each)) for name, each in values.items() if all(map(math.isfinite, each))}


def _figures(trials: Sequence[_Seen], failing: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return bounds for what was printed. For figures of a fixed variant, `failing` has the bounds of repro."""
    bounds: dict[str, str] = {}
    printed = without_escapes(trials[0].result.stdout)
    for name, (low, high) in [*_ranges(trials).items()][:FIGURES]:
        if _ERROR.search(name) and low >= 0:
            bounds[name] = _error_bound(low, high, fixed=failing is not None)
        elif failing and name in failing and all(map(Bound.parse(failing[name]).holds, (low, high))):
            bounds[name] = failing[name]
        elif low == high and (low == 0 or (abs(low) < EXACT and _is_count(name, printed))):
            bounds[name] = f"== {int(low)}"
        else:
            room = max(abs(low), abs(high)) * 0.01 + (high - low) / 2
            bounds[name] = _between(low - room, high + room)
    return {"figures": bounds} if bounds else {}


def _between(low: float, high: float) -> str:
    return f"> {low:.4g}, < {high:.4g}"


def _error_bound(low: float, high: float, *, fixed: bool) -> str:
    if high < SMALL or (low < SMALL and not fixed):
        return NO_ERROR if high < 1e-6 else f"< {10 * high:.0e}"
    return f"< {2 * high:.1g}" if fixed else f"> {low / 10:.0e}"


def _digests(trials: Sequence[_Seen]) -> dict[str, Any]:
    """Return which digests differ between the trials."""
    names = [*trials[0].seen.digests]
    different = [name for name in names if len({seen.digests.get(name) for seen, _ in trials}) > 1]
    return {"differs": different} if different else {}


def _growth(trials: Sequence[_Seen]) -> dict[str, Any]:
    """Return a bound on the growth of the first series that grows in each trial, at half of the least growth."""
    for name, points in trials[0].seen.series.items():
        warm_up = min(5, len(points) // 5)
        steps = {"steps": len(points) - warm_up} if len(points) - warm_up < 10 else {}
        if len(points) - warm_up < 3:
            continue
        declared: dict[str, Any] = {"series": name, "per_step": "> 0", "warm_up": warm_up, **steps}
        slopes = [growth(Growth.model_validate(declared), seen) or 0.0 for seen, _ in trials]
        declared["per_step"] = f"> {min(slopes) / 2:.2g}"
        grows = Signature(Expectation.model_validate({"growth": declared}))
        if min(slopes) > 0 and all(grows.read(each.result, each.seen).sign is Sign.SHOWS for each in trials):
            return {"growth": declared}
    return {}


def _is_count(name: str, printed: str) -> bool:
    """Whether this was printed as a whole number, and its name is not that of a measure: f"{1.0:g}" is 1 too."""
    return not _MEASURE.search(name) and bool(re.search(rf"(?m)^{re.escape(name)}=[-+]?[0-9]+\r?$", printed))


def _level(repro: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the fixed variant must do where repro's outputs differ, or a series of its grows: not that."""
    same = {"same": repro["differs"]} if "differs" in repro else {}
    if "growth" not in repro:
        return same
    return same | {"growth": {**repro["growth"], "per_step": f"< {float(repro['growth']['per_step'][2:]) / 4:.2g}"}}


def _grown(repro: Mapping[str, Any]) -> str:
    grown = repro.get("growth")
    return f"{grown['series']} grows by {2 * float(grown['per_step'][2:]):.2g} per step" if grown else ""


def _clean(seen: Observation) -> dict[str, Any]:
    """Return what fixed.py would print, if that goes without saying: the same errors, and small.

    Empty if repro.py would pass too: the failure is in other figures then.
    """
    if seen.failed and seen.exception != "AssertionError":
        return {}
    errors = {name: NO_ERROR for name, value in seen.figures.items() if _ERROR.search(name) and not math.isnan(value)}
    counts = {name: "== 0" for name, value in seen.figures.items() if _NON_FINITE.search(name)}
    both = {"figures": errors | counts}
    telling = seen.failed or any(name in both["figures"] for name in _wrong(seen.figures, both))
    return both if telling and both["figures"] else {}


def _remarks(seen: Observation) -> list[str]:
    unbounded = [f"{name} is {value}" for name, value in seen.figures.items() if not math.isfinite(value)]
    remarks = [f"{what}; no bound holds for that, so print a count of such values" for what in unbounded]
    remarks += [f"{name} was printed with different values, so it is left out" for name in seen.contradicted]
    what = "say in case.yaml whether it differs between runs (differs) or not (same)"
    remarks += [f"{name} is a digest: {what}" for name in seen.digests]
    if len(seen.figures) > FIGURES:
        remarks.append(f"{len(seen.figures) - FIGURES} more figures were printed; the first {FIGURES} are taken")
    return remarks


# A message as a regular expression


def pattern(text: str) -> str:
    """Return a regular expression found in `text`, and in the same text with other addresses, times and sizes."""
    pieces: list[tuple[str, str]] = []  # words and volatile parts, and the pattern of each
    at = 0
    for match in _ANY_VOLATILE.finditer(text):
        pieces += _words(text[at : match.start()])
        pieces.append((match[0], _escaped(match["kept"] or "") + _VOLATILE[match.lastgroup or ""][1]))
        at = match.end()
    written, taken = "", 0
    for piece, its_pattern in [*pieces, *_words(text[at:])]:
        taken += len(piece)
        if taken > LENGTH and written:
            break
        written += its_pattern
    return written.rstrip()


def _words(text: str) -> list[tuple[str, str]]:
    return [(word, _escaped(word)) for word in re.findall(r"\s*\S+|\s+", text)]


def _escaped(text: str) -> str:
    """Escape less than re.escape does: spaces, hyphens and # have no meaning outside of verbose patterns."""
    return _SPECIAL.sub(r"\\\g<0>", text)
