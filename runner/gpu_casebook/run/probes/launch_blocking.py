"""Launch blocking as a probe: where a CUDA error surfaced, and where the launch was that made it.

Kernels run while the script goes on, so some later call raises their errors. With CUDA_LAUNCH_BLOCKING=1 each launch
waits for its kernel and raises the error itself. The exception may then have another type: torch.AcceleratorError from
PyTorch becomes RuntimeError from Triton's launcher. So it counts as the same failure if the CUDA error is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal

from failure_signature.judging.description import SourceLine, ending, failing, surfaced
from failure_signature.judging.outcome import observe
from failure_signature.kinds import Failure, Variant
from failure_signature.result import TrialResult
from failure_signature.trials import Observation, Trial
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import ProbeRecord
from gpu_casebook.run.plan import Plan
from gpu_casebook.run.probes import Bench, Words, ran_kernels
from gpu_casebook.trial import Limits

VARIABLES: Mapping[str, str] = {"CUDA_LAUNCH_BLOCKING": "1"}


class LaunchBlockingProbe(ProbeRecord):
    """repro with CUDA_LAUNCH_BLOCKING=1."""

    probe: Literal["launch-blocking"] = "launch-blocking"
    error: str
    surfaced: SourceLine | None = None
    """Where `error` showed in an ordinary trial; None where no traceback names a line of the case's own files."""
    launched: SourceLine | None = None
    """Where the probe's own error showed."""
    seen: Observation | None = None
    """How the probe ended."""


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


def record_of(plain: Trial, result: TrialResult) -> LaunchBlockingProbe:
    """Return the probe's record: `plain` is an ordinary trial, `result` the same script with VARIABLES set."""
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
    """Return what became of the failure; None if the probe gave nothing."""
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


class LaunchBlocking:
    """Satisfies `gpu_casebook.run.probes.Probe`."""

    record = LaunchBlockingProbe

    def suggested(self, _failure: Failure) -> bool:
        return True

    def applies(self, plan: Plan, trials: Sequence[Trial], _sanitized: Sequence[Trial]) -> bool:
        return ran_kernels(plan, trials) and failing(trials) is not None

    def run(self, bench: Bench, trials: Sequence[Trial], limits: Limits) -> Iterator[LaunchBlockingProbe]:
        plain = failing(trials)
        assert plain
        try:
            yield record_of(plain, bench.run(Variant.REPRO, limits, VARIABLES))
        except (CasebookError, OSError) as error:
            yield LaunchBlockingProbe(error=plain.observation.cuda_error or "", note=str(error))

    def words(self, record: ProbeRecord) -> Words:
        assert isinstance(record, LaunchBlockingProbe)
        rows = [
            ("in an ordinary run", *_cells(record.surfaced)),
            ("with CUDA_LAUNCH_BLOCKING=1", *_cells(record.launched)),
        ]
        placed = record.surfaced or record.launched
        became = effect(record)
        return Words(
            header=("the error is raised", "line", "code"),
            rows=rows if placed else (),
            conclusion=_conclusion(record),
            launched=record.launched,
            moved=became is Effect.MOVED,
            raised=became is Effect.SAME_LINE,
            gone_with="CUDA_LAUNCH_BLOCKING=1" if became is Effect.GONE else "",
        )


LAUNCH_BLOCKING = LaunchBlocking()


def _cells(at: SourceLine | None) -> tuple[str, str]:
    return (f"{at.file}:{at.line}", at.text or "") if at else ("", "")


def _conclusion(probe: LaunchBlockingProbe) -> str:
    match effect(probe):
        case None:
            return f"Launch blocking says nothing: {probe.note or 'it was not run'}."
        case Effect.GONE:
            return f"With CUDA_LAUNCH_BLOCKING=1 {probe.error} is gone: it is a matter of timing."
        case Effect.OTHER:
            how = ending(probe.seen) if probe.seen else "unknown"
            return f"With CUDA_LAUNCH_BLOCKING=1 it fails in another way: {how}."
        case Effect.SAME_LINE:
            return f"{probe.error} is raised at the line that causes it."
        case Effect.MOVED:
            return f"{probe.error} surfaces at one line, and comes of a launch at another."
        case Effect.UNPLACED:
            return f"{probe.error} comes with CUDA_LAUNCH_BLOCKING=1 too; not every traceback names a line of the case."
