"""Does a trial match what was declared? Pure: results and declarations in, outcomes out."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, islice, pairwise
from signal import Signals, strsignal
from statistics import median
from typing import NamedTuple

from failure_signature.expectation import Expectation, Growth, Hang
from failure_signature.judging.description import ending, exception
from failure_signature.judging.infra import blame
from failure_signature.patterns import TooSlowError, find, search
from failure_signature.reading import cuda_errors, stacks, tracebacks
from failure_signature.reading.printed import is_cut, read
from failure_signature.result import TrialResult
from failure_signature.text import one_line, without_escapes
from failure_signature.trials import Observation, Outcome

_AFTER_UNCAUGHT = {1, 120, None}
"""What Python exits with after an uncaught exception: 120 where flushing stdout fails too, None under a signal."""

_NEARLY_ALL = 0.9


class Judgement(NamedTuple):
    outcome: Outcome
    mismatches: tuple[str, ...] = ()  # what differs from the expectation, line by line
    infra: str | None = None  # why the machine is to blame


def observe(result: TrialResult, script: str = "") -> Observation:
    """Return all that an expectation can name, whether or not this case's expectation names it.

    `script` is the name of the trial's own script: an exception of another script that it started is not its own.
    """
    stdout, stderr = without_escapes(result.stdout), without_escapes(result.stderr)
    raised = _raised(result, script)
    clear = raised if raised and not raised.unclear else None
    return Observation(
        exit_status=result.exit_status,
        signal=result.signal,
        timed_out=result.timed_out,
        hung=result.hung,
        hung_after_s=result.hung_after_s,
        slow=result.slow,
        stacks=list(result.stacks),
        out_of_memory=result.out_of_memory,
        exception=clear.type if clear else None,
        message=clear.message if clear else None,
        causes=list(clear.causes) if clear else [],
        cuda_error=None if result.exit_status == 0 else _cuda_error(stdout, stderr, raised),
        **read(stdout)._asdict(),
    )


def _raised(result: TrialResult, script: str = "") -> tracebacks.Raised | None:
    if result.hung or result.exit_status not in _AFTER_UNCAUGHT:
        return None
    return tracebacks.last_raised(without_escapes(result.stderr), script)


def _unclear(result: TrialResult) -> str:
    raised = _raised(result)
    return f"; {raised.unclear}" if raised and raised.unclear else ""


def judge(
    expectation: Expectation, result: TrialResult, seen: Observation, failure: Expectation | None = None
) -> Judgement:
    """Return as-expected if everything declared holds; else infra if the output blames the machine; else otherwise.

    `seen` is what `observe` read off the result; `failure`, for a trial of fixed, what repro is expected to show.
    """
    if result.infra:
        return Judgement(Outcome.INFRA, infra=result.infra)
    mismatches = (*_mismatches(expectation, seen, result), *(_survived(failure, result) if failure else ()))
    if not mismatches:
        return Judgement(Outcome.AS_EXPECTED)
    reason = blame("\n".join([result.stderr, result.stdout, seen.cuda_error or ""])) if seen.failed else None
    return Judgement(Outcome.INFRA if reason else Outcome.OTHERWISE, mismatches, reason)


def lines(expectation: Expectation) -> list[str]:
    """Return everything that must hold, one "aspect: value" a line; figures as "figure NAME: BOUND"."""
    implied = "not 0" if expectation.must_fail else "0"
    status = implied if expectation.exit_status is None else str(expectation.exit_status)
    named = {
        "exit status": None if expectation.signal or expectation.hang else status,
        "signal": expectation.signal,
        "exception": expectation.exception,
        "message": expectation.message,
        "CUDA error": expectation.cuda_error,
        "hang": expectation.hang and _hang_line(expectation.hang),
    }
    declared = [f"{aspect}: {value}" for aspect, value in named.items() if value is not None]
    declared += [f"figure {name}: {bound}" for name, bound in expectation.figures.items()]
    declared += [f"digest {name}: differs between runs" for name in expectation.differs]
    declared += [f"digest {name}: the same in every run" for name in expectation.same]
    if expectation.growth:
        declared.append(_growth_line(expectation.growth))
    return declared + ([f"rate: {expectation.rate}"] if expectation.rate else [])


def _hang_line(declared: Hang) -> str:
    return f"after {declared.after:g} s, in {declared.stack}"


def _growth_line(declared: Growth) -> str:
    left_out = f", the first {declared.warm_up} left out" if declared.warm_up else ""
    return f"growth {declared.series}: {declared.per_step} per step over {declared.steps} steps or more{left_out}"


def _mismatches(expected: Expectation, seen: Observation, result: TrialResult) -> Iterator[str]:
    if expected.hang:
        yield from _wrong_hang(expected.hang, seen)
    elif seen.hung:
        yield f"time: {ending(seen)}"
    elif seen.timed_out:
        slow = ", and was still getting on" if seen.slow else ""
        yield f"time: ended at the time limit after {result.duration_s:.0f} s{slow}"
    elif seen.out_of_memory:
        yield "memory: ended at the memory limit"
    else:
        yield from _wrong_end(expected, seen)
    yield from _wrong_exception(expected, seen, result)
    yield from _wrong_message(expected, seen, result)
    if expected.cuda_error and seen.cuda_error != expected.cuda_error:
        yield f"CUDA error: expected {expected.cuda_error}, saw {seen.cuda_error or f'none{_unclear(result)}'}"
    yield from _wrong_figures(expected, seen)
    yield from _wrong_digests(expected, seen)
    if expected.growth:
        yield from _wrong_growth(expected.growth, seen)
    named = expected.figures or expected.differs or expected.same or expected.growth
    if named and is_cut(result.stdout):
        yield "stdout: is too long to be kept whole, and may contradict itself in what was cut; print less"


def _survived(failure: Expectation, result: TrialResult) -> Iterator[str]:
    """Yield how a trial of fixed shows repro's failure after all: in a thread or a child, or caught and printed."""
    stdout, stderr = without_escapes(result.stdout), without_escapes(result.stderr)
    told = "the failure of repro, though not as the end of the process"
    if failure.exception:
        type_ = failure.exception.removeprefix("builtins.").removeprefix("__main__.")
        for raised in tracebacks.all_raised(stderr):
            if raised.type == type_ and (failure.message is None or find(failure.message, raised.message)):
                yield f"printed {told}: {one_line(str(raised), 200)}"
                return
    if failure.cuda_error and _cuda_error(stdout, stderr, None) == failure.cuda_error:
        yield f"printed {told}: {failure.cuda_error}"
    if failure.signal:
        name = re.escape(strsignal(Signals[failure.signal]) or failure.signal)
        died = rf"Fatal Python error: {name}|killed by signal: {name}|died with <Signals\.{failure.signal}:"
        if found := re.search(died, stderr):
            yield f"printed {told}: {found[0]}"


def _wrong_hang(expected: Hang, seen: Observation) -> Iterator[str]:
    declared = f"hang: expected after {expected.after:g} s in /{expected.stack}/"
    if not seen.hung:
        yield f"{declared}, saw {ending(seen)}"
    elif not seen.stacks:
        yield f"{declared}, and no stack could be taken"
    elif wrong := _elsewhere(expected, seen):
        yield f"{declared}, {wrong}"


def _elsewhere(expected: Hang, seen: Observation) -> str | None:
    """Return why none of the stacks is of the hang that is declared, or None if one is."""
    try:
        there = stacks.matching(expected.stack, seen.stacks)
    except TooSlowError as error:
        return str(error)
    asleep = {stack.number for stack in seen.stacks if stacks.asleep(stack)}
    if any(stack.number not in asleep for stack in there):
        return None
    return f"{'but it sleeps by the clock there' if there else 'found in no stack'}: {ending(seen)}"


def _wrong_figures(expected: Expectation, seen: Observation) -> Iterator[str]:
    for name, bound in expected.figures.items():
        if name in seen.contradicted:
            yield f"figure {name}: expected {bound}, was printed with different values"
        elif name not in seen.figures:
            yield f"figure {name}: expected {bound}, was not printed"
        elif not bound.holds(seen.figures[name]):
            yield f"figure {name}: expected {bound}, saw {seen.figures[name]!r}"


def _wrong_digests(expected: Expectation, seen: Observation) -> Iterator[str]:
    """A single trial only shows whether they were printed. Whether they differ is decided over all trials."""
    for name in dict.fromkeys([*expected.differs, *expected.same]):
        if name in seen.contradicted:
            yield f"digest {name}: was printed with different values"
        elif name not in seen.digests:
            yield f"digest {name}: was not printed"


def _wrong_growth(expected: Growth, seen: Observation) -> Iterator[str]:
    declared = f"growth {expected.series}: expected {expected.per_step} per step"
    points = _after_warm_up(expected, seen)
    if expected.series in seen.contradicted:
        yield f"{declared}, was printed with different values"
    elif len(points) < expected.steps:
        yield f"{declared}, saw {len(points)} steps after warm-up where {expected.steps} are needed"
    else:
        wrong = (told for estimate, told in _estimates(expected, points) if not expected.per_step.holds(estimate))
        yield from (f"{declared}, saw {told}" for told in islice(wrong, 1))


def _estimates(expected: Growth, points: Sequence[tuple[int, float]]) -> Iterator[tuple[float, str]]:
    """Yield estimates of the growth, each of which the bound must hold for, and what to say where it does not."""
    yield (per_step := slope(points)), f"{per_step:.6g}"
    level = without_jump(points)
    yield (apart := slope(level)), f"nearly all of it at one step, and {apart:.6g} apart from that"
    yield (late := slope(level[len(points) // 2 :])), f"{late:.6g} in the later half of the steps"
    if expected.per_step.holds(math.inf):  # a leak is declared, and not that there is none
        kept = lasting(level)
        yield kept, f"it come and go, and {kept:.6g} from the first half of the steps to the later one"


def _wrong_end(expected: Expectation, seen: Observation) -> Iterator[str]:
    if expected.signal:
        if seen.signal != expected.signal:
            yield f"signal: expected {expected.signal}, saw {ending(seen)}"
    elif expected.exit_status is not None:
        if seen.exit_status != expected.exit_status:
            yield f"exit status: expected {expected.exit_status}, saw {ending(seen)}"
    elif expected.must_fail != seen.failed:
        yield f"exit status: expected {'not 0' if expected.must_fail else '0'}, saw {ending(seen)}"


def _wrong_exception(expected: Expectation, seen: Observation, result: TrialResult) -> Iterator[str]:
    if not expected.exception:
        return
    if not seen.exception:
        yield f"exception: expected {expected.exception}, saw {ending(seen)}{_unclear(result)}"
    elif seen.exception != expected.exception.removeprefix("builtins.").removeprefix("__main__."):
        yield f"exception: expected {expected.exception}, saw {exception(seen)}"


def _wrong_message(expected: Expectation, seen: Observation, result: TrialResult) -> Iterator[str]:
    if expected.message is None:
        return
    if expected.exception:
        texts, place = [seen.message or "", *reversed(seen.causes)], "the exception's text"
    else:
        texts, place = [without_escapes(result.stdout), without_escapes(result.stderr)], "the output"
    try:
        if not any(search(expected.message, text) for text in texts):
            yield f"message: expected /{expected.message}/, not found in {place}"
    except TooSlowError as error:
        yield f"message: {error}"


def _cuda_error(stdout: str, stderr: str, raised: tracebacks.Raised | None) -> str | None:
    """Return the CUDA error that ended the process.

    If an exception of another kind ended it, the process had survived CUDA errors that it printed earlier. If no
    exception ended it, an error that is reported counts, and one that only a help text mentions does not.
    """
    _, aborted, abort = stderr.rpartition("terminate called ")
    texts = [abort] if aborted else []
    if raised:
        texts = texts if raised.unclear else [raised.message, *reversed(raised.causes), *texts]
        return next(filter(None, map(cuda_errors.find, texts)), None)
    printed = f"{stdout}\n{stderr}"
    asserted = "cudaErrorAssert" if cuda_errors.find_assertion(printed) else None
    return next(filter(None, map(cuda_errors.find, texts)), None) or cuda_errors.find_reported(printed) or asserted


def slope(points: Sequence[tuple[int, float]]) -> float:
    """Return the median of the slopes between any two points (Theil 1950, Sen 1968), in units of the values per step.

    NaN for fewer than two points, and if a value is not finite. Why not the median of the differences from step to
    step: allocators take memory in blocks, so the curve of a leak is a staircase, and most of its differences are 0.
    Why not least squares: one step at which memory comes and goes would tilt the line.
    """
    if len(points) < 2 or not all(math.isfinite(value) for _, value in points):
        return math.nan
    return median((late - early) / (after - before) for (before, early), (after, late) in combinations(points, 2))


def without_jump(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Remove a single jump that makes up at least 90 % of all movement; return the points unchanged if there is none.

    A one-off allocation in the middle gives most pairs of points a slope, and is no leak. A leak takes several blocks,
    and none of them makes up nearly all of it.
    """
    moves = [late - early for (_, early), (_, late) in pairwise(points)]
    largest = max(moves, key=abs, default=0.0)
    if abs(largest) < _NEARLY_ALL * sum(map(abs, moves)):
        return points
    at = moves.index(largest) + 1 if moves else 0
    return [*points[:at], *((step, value - largest) for step, value in points[at:])]


def lasting(points: Sequence[tuple[int, float]]) -> float:
    """Return the gain per step between both halves of the points, of the highest or lowest value: the lesser of both.

    If memory comes and goes in turns, such as garbage that is collected now and then, one of the two gains nothing.
    """
    half = len(points) // 2
    first, later = points[:half], points[half:]
    if not first:
        return math.nan
    high = (max(value for _, value in later) - max(value for _, value in first)) / (later[-1][0] - first[-1][0])
    low = (min(value for _, value in later) - min(value for _, value in first)) / (later[0][0] - first[0][0])
    return min(high, low)


def growth(declared: Growth, seen: Observation) -> float | None:
    """Return the growth per step after warm-up, or None if the script printed too few steps of it."""
    points = _after_warm_up(declared, seen)
    return slope(points) if len(points) >= declared.steps else None


def _after_warm_up(declared: Growth, seen: Observation) -> Sequence[tuple[int, float]]:
    points = seen.series.get(declared.series, [])
    return [point for point in points if point[0] >= points[0][0] + declared.warm_up]
