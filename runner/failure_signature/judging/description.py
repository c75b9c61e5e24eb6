"""A trial, or the trials of a variant, in a few words. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from failure_signature.document import Frozen
from failure_signature.kinds import Variant
from failure_signature.reading import cuda_errors, stacks, tracebacks
from failure_signature.result import CASE_DIRECTORY
from failure_signature.text import one_line, without_escapes
from failure_signature.trials import Observation, Outcome, Trial

FIGURES_SHOWN = 2


def ending(seen: Observation) -> str:
    """Return how a trial ended, on one line: "ValueError: off by two", "SIGSEGV", "exit status 3"."""
    if seen.hung:
        return f"hung after {seen.hung_after_s or 0:g} s: {stacks.standing(seen.stacks) or 'nobody knows where'}"
    if seen.timed_out:
        return "slow, still getting on at the time limit" if seen.slow else "ended at the time limit"
    if seen.out_of_memory:
        return "ended at the memory limit"
    if seen.exception:
        return exception(seen)
    status = seen.signal or f"exit status {seen.exit_status}"
    return f"{status}, {seen.cuda_error}" if seen.cuda_error and seen.failed else status


def exception(seen: Observation) -> str:
    """Return the exception that ended the process, on one line, with the telling line of its message, or its cause."""
    telling = telling_line(seen.message or "")
    if seen.causes and not re.search(r"\w", telling):  # Triton 3's compiler ends with a caret below the source
        return one_line(f"{seen.exception}, caused by {seen.causes[-1]}")
    return one_line(f"{seen.exception}: {telling}" if telling else str(seen.exception))


def telling_line(message: str) -> str:
    """Return the first line, or the last line of a message of Triton's compiler, which starts with place and source."""
    written = [line for line in message.splitlines() if line.strip()]
    if not written:
        return ""
    return written[-1] if re.match(r"at \d+:\d+:", written[0]) else written[0]


def endings(trials: Sequence[Trial]) -> str:
    """Return how the trials ended, the most frequent way first; one phrase if all ended alike."""
    (first, times), *others = Counter(ending(trial.observation) for trial in trials).most_common()
    return f"{first} ({times} of {len(trials)}, the others in {len(others)} other ways)" if others else first


def failing(trials: Sequence[Trial]) -> Trial | None:
    """Return the first trial of repro that ended with a CUDA error, preferring one that failed as declared; or None."""
    own = [trial for trial in trials if trial.variant is Variant.REPRO and trial.outcome is not Outcome.INFRA]
    ended = [trial for trial in own if trial.observation.failed and trial.observation.cuda_error]
    return min(ended, key=lambda trial: trial.outcome is not Outcome.AS_EXPECTED, default=None)


def digests(trials: Iterable[Trial], name: str) -> Counter[str]:
    """Return the values of a digest, with how often each came."""
    return Counter(trial.observation.digests[name] for trial in trials if name in trial.observation.digests)


def spread(values: Sequence[float]) -> str:
    """Return values in few words, such as "0.2506", "0.2501 to 0.2512" or "1 or nan"."""
    numbers = sorted(value for value in values if not math.isnan(value))
    ends = dict.fromkeys(map(number, (*numbers[:1], *numbers[-1:])))
    parts = [" to ".join(ends)] if ends else []
    return " or ".join([*parts, "nan"] if len(numbers) < len(values) else parts)


def number(value: float) -> str:
    """Return a number with four digits; a whole number with all of them."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e9 else f"{value:.4g}"


class SourceLine(Frozen):
    """A line of one of the case's own files, as a traceback has it."""

    file: str
    line: int
    function: str | None = None
    text: str | None = None
    """The statement's first line."""


def surfaced(stderr: str, inside: str = CASE_DIRECTORY) -> SourceLine | None:
    """Return the line of the case's own files that raised the CUDA error, by the traceback that ended the process."""
    frame = tracebacks.innermost(without_escapes(stderr), inside, cuda_errors.find)
    if frame is None:
        return None
    name = frame.file.removeprefix(f"{inside.rstrip('/')}/")
    return SourceLine(file=name, line=frame.line, function=frame.function, text=frame.text)
