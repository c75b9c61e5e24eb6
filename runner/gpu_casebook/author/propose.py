"""What a real trial of a script showed -> the expectation to propose, for the author to confirm. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpu_casebook.author.draft import Proposal
from gpu_casebook.errors import UsageError
from gpu_casebook.evidence import Observation
from gpu_casebook.judging import infra
from gpu_casebook.judging.description import ending, telling_line
from gpu_casebook.judging.expectation import observe
from gpu_casebook.kinds import Failure
from gpu_casebook.manifest.bounds import Bound
from gpu_casebook.manifest.rules import BLANK
from gpu_casebook.reading import stacks
from gpu_casebook.text import one_line, without_escapes
from gpu_casebook.trial import TrialResult

FIGURES = 12
CLEAN = "< 1e-5"
"""What an error is proposed to be when nothing is wrong: float32 against a reference in float64."""
SMALL = 1e-4
EXACT = 1e15
"""Whole numbers below are themselves as a float."""

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


def propose(result: TrialResult, name: str) -> Proposal:
    """Return what to declare after one trial of the script `name`, which is to show the failure.

    Raises UsageError if it can't be a case's script: it asks for input or arguments, or does not come to an end.
    """
    seen = observe(result)
    _refuse(seen, result, name)
    end = one_line(ending(seen), 160)
    if remark := _not_the_bug(seen, result):
        return Proposal(seen=end, remarks=[remark])
    repro = dict(_failure(seen)) | dict(_figures(seen, result))
    if not repro:
        shown = f"{name} ended with {end}, and no figure that it printed can be bounded, so nothing shows the failure"
        return Proposal(seen=end, remarks=[f"{shown}: let it raise, or print a line name=value", *_remarks(seen)])
    fixed = _clean(seen)
    return Proposal(
        failure=kind(seen, result),
        repro=repro,
        fixed=fixed,
        seen=end if seen.failed else _listed(seen.figures, _wrong(seen.figures, fixed)) or end,
        remarks=_remarks(seen),
        figures=seen.figures,
    )


def proof(result: TrialResult, name: str, failing: Proposal) -> Proposal:
    """Return what to declare, after one trial of the fixed variant, as the proof that its check ran and passed.

    `failing` is what a trial of repro gave. A figure that both have in common gets the same bound.
    """
    seen = observe(result)
    _refuse(seen, result, name)
    end = one_line(ending(seen), 160)
    if seen.failed:
        return Proposal(seen=end, remarks=[f"{name} is to end with exit status 0, and ended otherwise: {end}"])
    fixed = _figures(seen, result, failing.repro.get("figures", {}))
    remarks = [] if fixed else [f"{name} printed no figure, so nothing proves that its check ran"]
    wrong = _wrong(failing.figures, fixed)
    if fixed and not wrong and failing.repro.keys() == {"figures"}:
        remarks.append(f"every figure that repro.py printed would do for {name} too, so nothing tells them apart")
    return Proposal(fixed=fixed, seen=_listed(seen.figures, wrong) or end, remarks=remarks, figures=seen.figures)


def keep_discriminating_figures(failing: Proposal, passed: Proposal) -> Proposal:
    """Drop figures from what was seen of repro that the fixed variant's bounds would also accept."""
    if failing.repro.keys() != {"figures"} or not passed.fixed:
        return failing
    return replace(failing, seen=_listed(failing.figures, _wrong(failing.figures, passed.fixed)))


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


def _refuse(seen: Observation, result: TrialResult, name: str) -> None:
    """Raise UsageError for a script that can't be a case's as it stands."""
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


def _not_the_bug(seen: Observation, result: TrialResult) -> str | None:
    if result.infra:
        return f"the trial could not be run: {result.infra}"
    if seen.exception in {"ModuleNotFoundError", "ImportError"}:
        return f"the script lacks a package here, so this trial says nothing: {one_line(seen.message or '', 120)}"
    blamed = infra.blame(f"{result.stderr}\n{result.stdout}\n{seen.message or ''}") if seen.failed else None
    if blamed or "not compiled with CUDA enabled" in (seen.message or ""):
        return f"this trial says nothing, as the machine is to blame for its end: {blamed or 'this torch has no CUDA'}"
    return None


def kind(seen: Observation, result: TrialResult) -> Failure:  # noqa: PLR0911 - a list of signs, the surest first
    """Return the kind of failure that this looks like."""
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
    if seen.series and not seen.failed:
        return Failure.LEAK
    return Failure.WRONG_NUMBERS if seen.figures and by_figures else Failure.EXCEPTION


def _failure(seen: Observation) -> dict[str, Any]:
    """Return what to declare of how it ended, if that was badly."""
    if seen.hung:
        places = dict.fromkeys(place for stack in seen.stacks if (place := stacks.standing_at(stack)))
        after = f"{max(1, round(seen.hung_after_s or 20)):d}s"
        return {"hang": {"after": after, "stack": "|".join(re.escape(place) for place in places) or BLANK}}
    found: dict[str, Any] = {}
    if seen.signal:
        found["signal"] = seen.signal
    if seen.exception:
        found["exception"] = seen.exception
        if message := pattern(telling_line(seen.message or "")):
            found["message"] = message
    if seen.cuda_error and seen.failed:
        found["cuda_error"] = seen.cuda_error
    if not found and seen.exit_status not in {0, None}:
        found["exit_status"] = seen.exit_status
    return found


def _figures(seen: Observation, result: TrialResult, failing: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return bounds for what was printed. For figures of a fixed variant, `failing` has the bounds of repro."""
    bounds: dict[str, str] = {}
    printed = without_escapes(result.stdout)
    for name, value in [*seen.figures.items()][:FIGURES]:
        if _ERROR.search(name) and value >= 0:
            bound = _error_bound(value, fixed=failing is not None)
        elif failing and name in failing and Bound.parse(failing[name]).holds(value):
            bound = failing[name]
        else:
            bound = _bound(value, counted=_is_count(name, printed))
        if bound:
            bounds[name] = bound
    return {"figures": bounds} if bounds else {}


def _error_bound(value: float, *, fixed: bool) -> str | None:
    if math.isinf(value):
        return None
    if value < SMALL:
        return CLEAN if value < 1e-6 else f"< {10 * value:.0e}"
    return f"< {2 * value:.1g}" if fixed else f"> {value / 10:.0e}"


def _is_count(name: str, printed: str) -> bool:
    """Whether this was printed as a whole number, and its name is not that of a measure: f"{1.0:g}" is 1 too."""
    return not _MEASURE.search(name) and bool(re.search(rf"(?m)^{re.escape(name)}=[-+]?[0-9]+\r?$", printed))


def _bound(value: float, *, counted: bool) -> str | None:
    """Return a bound that this value satisfies, with room unless it is exact. None if there is none, as for NaN."""
    if not math.isfinite(value):
        return None
    if value == 0 or (counted and abs(value) < EXACT):
        return f"== {int(value)}"
    room = abs(value) * 0.01
    return f"> {value - room:.4g}, < {value + room:.4g}"


def _clean(seen: Observation) -> dict[str, Any]:
    """Return what fixed.py would print, if that goes without saying: the same errors, and small.

    Empty if repro.py would pass too: the failure is in other figures then.
    """
    if seen.failed and seen.exception != "AssertionError":
        return {}
    errors = {name: CLEAN for name, value in seen.figures.items() if _ERROR.search(name) and not math.isnan(value)}
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
    remarks += [f"{name} is a series: for a leak, bound its growth (growth: in case.yaml)" for name in seen.series]
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
