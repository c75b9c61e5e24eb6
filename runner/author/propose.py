"""What a real trial of a script showed -> the expectation to propose, for the author to confirm. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.author.blanks import MARK
from runner.author.generalise import pattern
from runner.engines.base import TrialResult
from runner.errors import UsageError
from runner.evidence import Observation
from runner.judging import infra
from runner.judging.expectation import ending, failed, observe, telling_line
from runner.manifest.model import Failure
from runner.probes import stacks
from runner.text import one_line, without_escapes

FIGURES = 12
CLEAN = "< 1e-5"
"""What an error is proposed to be when nothing is wrong: float32 against a reference in float64."""
SMALL = 1e-4

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
_ERROR = re.compile(r"(?:^|[_.-])(?:err|error|diff|difference|delta|deviation|off_by)(?:$|[_.-])", re.IGNORECASE)
_NON_FINITE = re.compile(r"(?:^|[_.-])(?:nans?|infs?|non_?finite|not_finite)(?:$|[_.-])", re.IGNORECASE)
_WANTS_INPUT = "asks for input, and a trial has none: put the values into the script"


@dataclass(frozen=True)
class Proposal:
    """What to write under `expect`, key by key: texts, or a mapping of figures to bounds; empty where nothing is known.

    `remarks` are lines for the author, who is told what was seen as `seen`.
    """

    failure: Failure | None = None
    repro: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seen: str = ""
    remarks: Sequence[str] = ()


def propose(result: TrialResult, name: str) -> Proposal:
    """What one trial of the script `name`, which is to show the failure, gives to declare.

    Raises UsageError where it could not be a trial: it asks for input or arguments, or does not come to an end.
    """
    seen = observe(result)
    refuse(seen, result, name)
    if remark := _not_the_bug(seen, result):
        return Proposal(seen=one_line(ending(seen)), remarks=[remark])
    repro = dict(_failure(seen)) | dict(_figures(seen))
    told = one_line(ending(seen), 160)
    if not repro:
        shown = f"{name} ended with {told}, and no figure that it printed can be bounded, so nothing shows the failure"
        return Proposal(seen=told, remarks=[f"{shown}: let it raise, or print a line name=value", *_remarks(seen)])
    return Proposal(
        failure=kind(seen, result),
        repro=repro,
        fixed=_clean(seen),
        seen=told,
        remarks=list(_remarks(seen)),
    )


def proof(result: TrialResult, name: str) -> Proposal:
    """What one trial of the fixed variant gives to declare as the proof that its check ran and passed."""
    seen = observe(result)
    refuse(seen, result, name)
    told = one_line(ending(seen), 160)
    if failed(seen):
        return Proposal(seen=told, remarks=[f"{name} is to end with exit status 0, and ended otherwise: {told}"])
    figures = dict(_figures(seen, fixed=True))
    remarks = [] if figures else [f"{name} printed no figure, so nothing proves that its check ran"]
    return Proposal(fixed=figures, seen=told, remarks=remarks)


def refuse(seen: Observation, result: TrialResult, name: str) -> None:
    """Raises UsageError for a script that can't be a case's as it stands."""
    if seen.exception == "EOFError" and "reading a line" in (seen.message or ""):
        raise UsageError(f"{name} {_WANTS_INPUT}, or leave the trial out with --no-trial")
    usage = next((line for line in result.stderr.splitlines() if line.startswith("usage: ")), None)
    if seen.exit_status == 2 and usage:
        told = one_line(result.stderr.strip().rpartition("\n")[2], 120)
        raise UsageError(f"{name} wants arguments, and a trial gives none ({told}): put their values into the script")
    if seen.timed_out and not seen.hung:
        still = f"{name} still ran, and got on, after {result.duration_s:.0f} s"
        raise UsageError(f"{still}: give it an end, or more time with --timeout")


def _not_the_bug(seen: Observation, result: TrialResult) -> str | None:
    if result.infra:
        return f"the trial could not be run: {result.infra}"
    if seen.exception in {"ModuleNotFoundError", "ImportError"}:
        return f"the script lacks a package here, so this trial says nothing: {one_line(seen.message or '', 120)}"
    blamed = infra.blame(f"{result.stderr}\n{result.stdout}\n{seen.message or ''}") if failed(seen) else None
    if blamed or "not compiled with CUDA enabled" in (seen.message or ""):
        return f"this trial says nothing, as the machine is to blame for its end: {blamed or 'this torch has no CUDA'}"
    return None


def kind(seen: Observation, result: TrialResult) -> Failure:  # noqa: PLR0911 - a list of signs, the surest first
    """The kind of failure that this looks like."""
    said = f"{seen.exception or ''}\n{seen.message or ''}\n{without_escapes(result.stderr)}"
    if seen.hung:
        return Failure.HANG
    if seen.cuda_error in _ACCESS:
        return Failure.ILLEGAL_ACCESS
    if seen.cuda_error in _LAUNCH or (failed(seen) and _LAUNCH_WORDS.search(said)):
        return Failure.LAUNCH_ERROR
    if seen.exception and (_COMPILING.search(seen.exception) or _COMPILER_WORDS.search(seen.message or "")):
        return Failure.COMPILE_ERROR
    if seen.signal or seen.out_of_memory:
        return Failure.CRASH
    if _tells_of_non_finite(seen):
        return Failure.NON_FINITE
    if seen.series and not failed(seen):
        return Failure.LEAK
    if seen.figures and (not failed(seen) or seen.exception == "AssertionError"):
        return Failure.WRONG_NUMBERS
    return Failure.EXCEPTION


def _tells_of_non_finite(seen: Observation) -> bool:
    if failed(seen) and seen.exception != "AssertionError":
        return False
    return any(not math.isfinite(value) or (value and _NON_FINITE.search(name)) for name, value in seen.figures.items())


def _failure(seen: Observation) -> dict[str, Any]:
    """How it ended, if that was badly."""
    if seen.hung:
        return _hang(seen)
    found: dict[str, Any] = {}
    if seen.signal:
        found["signal"] = seen.signal
    if seen.exception:
        found["exception"] = seen.exception
        if message := pattern(telling_line(seen.message or "")):
            found["message"] = message
    if seen.cuda_error and failed(seen):
        found["cuda_error"] = seen.cuda_error
    if not found and seen.exit_status not in {0, None}:
        found["exit_status"] = seen.exit_status
    return found


def _hang(seen: Observation) -> dict[str, Any]:
    places = dict.fromkeys(place for stack in seen.stacks if (place := stacks.standing_at(stack)))
    after = f"{max(1, round(seen.hung_after_s or 20)):d}s"
    return {"hang": {"after": after, "stack": "|".join(re.escape(place) for place in places) or MARK}}


def _figures(seen: Observation, *, fixed: bool = False) -> dict[str, Any]:
    bounds = {name: _bound(name, value, fixed=fixed) for name, value in [*seen.figures.items()][:FIGURES]}
    told = {name: bound for name, bound in bounds.items() if bound}
    return {"figures": told} if told else {}


def _bound(name: str, value: float, *, fixed: bool) -> str | None:
    """A bound that this value satisfies with room to spare; None where nothing is, as for NaN."""
    if math.isnan(value) or math.isinf(value):
        return None
    if _ERROR.search(name) and value >= 0:
        if value < SMALL:
            return CLEAN if value < 1e-6 else f"< {10 * value:.0e}"
        return f"< {2 * value:.1g}" if fixed else f"> {value / 10:.0e}"
    if value == int(value) and abs(value) < 1e15:
        return f"== {int(value)}"
    room = abs(value) * 0.01
    return f"> {value - room:.4g}, < {value + room:.4g}"


def _clean(seen: Observation) -> dict[str, Any]:
    """What fixed.py would print, where that goes without saying: the same errors, and small."""
    if failed(seen) and seen.exception != "AssertionError":
        return {}
    errors = {name: CLEAN for name, value in seen.figures.items() if _ERROR.search(name) and not math.isnan(value)}
    counts = {name: "== 0" for name, value in seen.figures.items() if _NON_FINITE.search(name)}
    both = errors | counts
    return {"figures": both} if both else {}


def _remarks(seen: Observation) -> list[str]:
    told = [
        f"{name} is {value}; no bound holds for that, so print a count of such values"
        for name, value in seen.figures.items()
        if not math.isfinite(value)
    ]
    told += [f"{name} was printed with different values, so it is left out" for name in seen.contradicted]
    told += [
        f"{name} is a digest: say in case.yaml whether it differs between runs (differs) or not (same)"
        for name in seen.digests
    ]
    told += [f"{name} is a series: for a leak, bound its growth (growth: in case.yaml)" for name in seen.series]
    if len(seen.figures) > FIGURES:
        told.append(f"{len(seen.figures) - FIGURES} more figures were printed; the first {FIGURES} are taken")
    return told
