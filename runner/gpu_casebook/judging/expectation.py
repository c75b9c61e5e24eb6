"""Does a trial match what was declared? Pure: results and declarations in, outcomes out."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpu_casebook.evidence import Observation, Outcome
from gpu_casebook.judging import infra
from gpu_casebook.judging.growth import after_warm_up, growth, growth_apart_from_one_jump
from gpu_casebook.manifest.case import Expectation
from gpu_casebook.manifest.model import Growth, Hang
from gpu_casebook.reading import cuda_errors, stacks, tracebacks
from gpu_casebook.reading.printed import read
from gpu_casebook.text import one_line, without_escapes
from gpu_casebook.trial import TrialResult

_AFTER_UNCAUGHT = {1, 120, None}
"""What Python exits with after an uncaught exception: 120 where flushing stdout fails too, None under a signal."""


class Judgement(NamedTuple):
    """Outcome of a trial; what differs from the expectation, line by line; why the machine is to blame."""

    outcome: Outcome
    mismatches: tuple[str, ...] = ()
    infra: str | None = None


def observe(result: TrialResult) -> Observation:
    """Read off a result all that an expectation can name, whatever was declared."""
    stdout, stderr = without_escapes(result.stdout), without_escapes(result.stderr)
    raised = tracebacks.last_raised(stderr) if result.exit_status in _AFTER_UNCAUGHT and not result.hung else None
    printed = read(stdout)
    return Observation(
        exit_status=result.exit_status,
        signal=result.signal,
        timed_out=result.timed_out,
        hung=result.hung,
        hung_after_s=result.hung_after_s,
        slow=result.slow,
        stacks=list(result.stacks),
        out_of_memory=result.out_of_memory,
        exception=raised.type if raised else None,
        message=raised.message if raised else None,
        causes=list(raised.causes) if raised else [],
        cuda_error=_cuda_error(stdout, stderr, raised),
        figures=printed.figures,
        digests=printed.digests,
        series=printed.series,
        contradicted=printed.contradicted,
    )


def judge(expectation: Expectation, result: TrialResult) -> Judgement:
    """As expected if everything declared holds; else the machine's fault if it says so; else otherwise."""
    if result.infra:
        return Judgement(Outcome.INFRA, infra=result.infra)
    seen = observe(result)
    mismatches = tuple(_mismatches(expectation, seen, result))
    if not mismatches:
        return Judgement(Outcome.AS_EXPECTED)
    reason = infra.blame(_everything(seen, result)) if failed(seen) else None
    return Judgement(Outcome.INFRA if reason else Outcome.OTHERWISE, mismatches, reason)


def lines(expectation: Expectation) -> list[str]:
    """Everything that must hold, one "aspect: value" a line; figures as "figure NAME: BOUND"."""
    implied = "not 0" if _must_fail(expectation) else "0"
    status = implied if expectation.exit_status is None else str(expectation.exit_status)
    named = {
        "exit status": None if expectation.signal or expectation.hang else status,
        "signal": expectation.signal,
        "exception": expectation.exception,
        "message": expectation.message,
        "CUDA error": expectation.cuda_error,
        "hang": expectation.hang and f"after {expectation.hang.after:g} s, in {expectation.hang.stack}",
    }
    declared = [f"{aspect}: {value}" for aspect, value in named.items() if value is not None]
    declared += [f"figure {name}: {bound}" for name, bound in expectation.figures.items()]
    declared += [f"digest {name}: differs between runs" for name in expectation.differs]
    declared += [f"digest {name}: the same in every run" for name in expectation.same]
    if expectation.growth:
        declared.append(_growth_line(expectation.growth))
    return declared + ([f"rate: {expectation.rate}"] if expectation.rate else [])


def _growth_line(declared: Growth) -> str:
    left_out = f", the first {declared.warm_up} left out" if declared.warm_up else ""
    return f"growth {declared.series}: {declared.per_step} per step over {declared.steps} steps or more{left_out}"


def failed(seen: Observation) -> bool:
    """Whether the process ended in any other way than exit status 0, or not by itself."""
    return seen.hung or seen.timed_out or seen.out_of_memory or seen.exit_status != 0


def ending(seen: Observation) -> str:
    """How a trial ended, on one line: "ValueError: off by two", "SIGSEGV", "exit status 3"."""
    if seen.hung:
        return f"hung after {seen.hung_after_s or 0:g} s: {stacks.standing(seen.stacks) or 'nobody knows where'}"
    if seen.timed_out:
        return "slow, still getting on at the time limit" if seen.slow else "ended at the time limit"
    if seen.out_of_memory:
        return "ended at the memory limit"
    if seen.exception:
        return exception(seen)
    status = seen.signal or f"exit status {seen.exit_status}"
    return f"{status}, {seen.cuda_error}" if seen.cuda_error and failed(seen) else status


def exception(seen: Observation) -> str:
    """The exception that ended the process, on one line, with the telling line of its message."""
    telling = telling_line(seen.message or "")
    return one_line(f"{seen.exception}: {telling}" if telling else str(seen.exception))


def telling_line(message: str) -> str:
    """The first line; but Triton's compiler begins with the place and the source, and says last what is wrong."""
    said = [line for line in message.splitlines() if line.strip()]
    if not said:
        return ""
    return said[-1] if re.match(r"at \d+:\d+:", said[0]) else said[0]


def _must_fail(expectation: Expectation) -> bool:
    return bool(expectation.exception or expectation.signal or expectation.cuda_error)


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
    yield from _wrong_exception(expected, seen)
    yield from _wrong_message(expected, seen, result)
    if expected.cuda_error and seen.cuda_error != expected.cuda_error:
        yield f"CUDA error: expected {expected.cuda_error}, saw {seen.cuda_error or 'none'}"
    yield from _wrong_figures(expected, seen)
    yield from _wrong_digests(expected, seen)
    if expected.growth:
        yield from _wrong_growth(expected.growth, seen)


def _wrong_hang(expected: Hang, seen: Observation) -> Iterator[str]:
    declared = f"hang: expected after {expected.after:g} s in /{expected.stack}/"
    if not seen.hung:
        yield f"{declared}, saw {ending(seen)}"
    elif not seen.stacks:
        yield f"{declared}, and no stack could be taken"
    elif not stacks.matching(expected.stack, seen.stacks):
        yield f"{declared}, found in no stack: {ending(seen)}"


def _wrong_figures(expected: Expectation, seen: Observation) -> Iterator[str]:
    for name, bound in expected.figures.items():
        if name in seen.contradicted:
            yield f"figure {name}: expected {bound}, was printed with different values"
        elif name not in seen.figures:
            yield f"figure {name}: expected {bound}, was not printed"
        elif not bound.holds(seen.figures[name]):
            yield f"figure {name}: expected {bound}, saw {seen.figures[name]!r}"


def _wrong_digests(expected: Expectation, seen: Observation) -> Iterator[str]:
    """One trial can only print them or not; whether they differ is seen over all trials."""
    for name in dict.fromkeys([*expected.differs, *expected.same]):
        if name in seen.contradicted:
            yield f"digest {name}: was printed with different values"
        elif name not in seen.digests:
            yield f"digest {name}: was not printed"


def _wrong_growth(expected: Growth, seen: Observation) -> Iterator[str]:
    declared = f"growth {expected.series}: expected {expected.per_step} per step"
    if expected.series in seen.contradicted:
        yield f"{declared}, was printed with different values"
        return
    per_step, apart = growth(expected, seen), growth_apart_from_one_jump(expected, seen)
    if per_step is None or apart is None:
        there = len(after_warm_up(expected, seen.series.get(expected.series, [])))
        yield f"{declared}, saw {there} steps after warm-up where {expected.steps} are needed"
    elif not expected.per_step.holds(per_step):
        yield f"{declared}, saw {per_step:.6g}"
    elif not expected.per_step.holds(apart):
        yield f"{declared}, saw nearly all of it at one step, and {apart:.6g} apart from that"


def _wrong_end(expected: Expectation, seen: Observation) -> Iterator[str]:
    if expected.signal:
        if seen.signal != expected.signal:
            yield f"signal: expected {expected.signal}, saw {ending(seen)}"
    elif expected.exit_status is not None:
        if seen.exit_status != expected.exit_status:
            yield f"exit status: expected {expected.exit_status}, saw {ending(seen)}"
    elif _must_fail(expected) != failed(seen):
        yield f"exit status: expected {'not 0' if _must_fail(expected) else '0'}, saw {ending(seen)}"


def _wrong_exception(expected: Expectation, seen: Observation) -> Iterator[str]:
    if not expected.exception:
        return
    if not seen.exception:
        yield f"exception: expected {expected.exception}, saw {ending(seen)}"
    elif seen.exception != expected.exception.removeprefix("builtins."):
        yield f"exception: expected {expected.exception}, saw {exception(seen)}"


def _wrong_message(expected: Expectation, seen: Observation, result: TrialResult) -> Iterator[str]:
    if expected.message is None:
        return
    if expected.exception:
        texts, place = [seen.message or "", *reversed(seen.causes)], "the exception's text"
    else:
        texts, place = [without_escapes(result.stdout), without_escapes(result.stderr)], "the output"
    if not any(re.search(expected.message, text) for text in texts):
        yield f"message: expected /{expected.message}/, not found in {place}"


def _everything(seen: Observation, result: TrialResult) -> str:
    return "\n".join([result.stderr, result.stdout, seen.cuda_error or ""])


def _cuda_error(stdout: str, stderr: str, raised: tracebacks.Raised | None) -> str | None:
    """The one that the process died of. What was printed before an exception of another kind was survived."""
    _, aborted, abort = stderr.rpartition("terminate called ")
    texts = [abort] if aborted else []
    if raised:
        texts = [raised.message, *reversed(raised.causes), *texts]
        return next(filter(None, map(cuda_errors.find, texts)), None)
    printed = f"{stdout}\n{stderr}"
    asserted = "cudaErrorAssert" if cuda_errors.find_assertion(printed) else None
    return next(filter(None, map(cuda_errors.find, texts)), None) or cuda_errors.find_last(printed) or asserted
