"""Where a CUDA error surfaced, and where the launch was that made it. Pure.

Kernels run while the script goes on, so their errors are raised by whatever call comes next. With
CUDA_LAUNCH_BLOCKING=1 each launch waits for its kernel, and raises the error itself. The exception's type may then be
another (torch.AcceleratorError, but RuntimeError from Triton's launcher): the same failure means the same CUDA error.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from gpu_casebook.evidence import LaunchBlockingProbe, Outcome, SourceLine, Trial, Variant
from gpu_casebook.judging.expectation import observe
from gpu_casebook.reading import cuda_errors, tracebacks
from gpu_casebook.text import without_escapes
from gpu_casebook.trial import CASE_DIRECTORY, TrialResult

VARIABLES: Mapping[str, str] = {"CUDA_LAUNCH_BLOCKING": "1"}


class Effect(StrEnum):
    """What became of the failure."""

    MOVED = "moved"
    """It shows at another line: that of the launch."""
    SAME_LINE = "same-line"
    UNPLACED = "unplaced"
    """The same CUDA error, and one of the two lines is not known."""
    GONE = "gone"
    OTHER = "other"
    """It fails in another way."""


def failing(trials: Sequence[Trial]) -> Trial | None:
    """The first trial of repro that ended with a CUDA error; one that did what was declared, if there is one."""
    own = [trial for trial in trials if trial.variant is Variant.REPRO and trial.outcome is not Outcome.INFRA]
    ended = [trial for trial in own if trial.observation.failed and trial.observation.cuda_error]
    return min(ended, key=lambda trial: trial.outcome is not Outcome.AS_EXPECTED, default=None)


def surfaced(stderr: str, inside: str = CASE_DIRECTORY) -> SourceLine | None:
    """The line of the case's own that the CUDA error came out of, by the traceback that ended the process."""
    frame = tracebacks.innermost(without_escapes(stderr), inside, cuda_errors.find)
    if frame is None:
        return None
    name = frame.file.removeprefix(f"{inside.rstrip('/')}/")
    return SourceLine(file=name, line=frame.line, function=frame.function, text=frame.text)


def probe(plain: Trial, result: TrialResult) -> LaunchBlockingProbe:
    """`result` is that of the same script with VARIABLES set."""
    seen = observe(result)
    return LaunchBlockingProbe(
        error=plain.observation.cuda_error or "",
        surfaced=surfaced(plain.stderr),
        seen=None if result.infra else seen,
        launched=surfaced(result.stderr) if seen.failed else None,
        note=result.infra,
        duration_s=result.duration_s,
        stdout=result.stdout,
        stderr=result.stderr,
    )


def effect(found: LaunchBlockingProbe) -> Effect | None:
    """None where the probe gave nothing."""
    if found.seen is None:
        return None
    if not found.seen.failed:
        return Effect.GONE
    if found.seen.cuda_error != found.error:
        return Effect.OTHER
    if found.surfaced is None or found.launched is None:
        return Effect.UNPLACED
    same = (found.surfaced.file, found.surfaced.line) == (found.launched.file, found.launched.line)
    return Effect.SAME_LINE if same else Effect.MOVED
