"""What the figures of trials say beyond their values."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from failure_signature.bounds import Bound
from failure_signature.judging.description import number
from failure_signature.kinds import Variant
from failure_signature.reading.printed import read
from failure_signature.trials import Trial
from gpu_casebook.evidence import Evidence


def same_figures(trials: Sequence[Trial]) -> bool:
    """Return whether there are figures, and each variant's are the very same in all of these trials."""
    seen = [(trial.variant, trial.observation.figures) for trial in trials if trial.observation.figures]
    return 0 < len({(variant, *sorted(figures.items())) for variant, figures in seen}) == len(dict(seen))


def without_failure(run: Evidence, stdout: str) -> Iterator[str]:
    """Yield a line if a run of repro printed figures that are not those of the failure, as the case declares it."""
    lines = [line.partition(": ") for line in run.case.signature.get(Variant.REPRO, [])]
    declared = {what: wanted for what, _, wanted in lines}
    seen = {name: value for name, value in read(stdout).figures.items() if f"figure {name}" in declared}
    with suppress(ValueError):  # of a bound that no longer is one
        bounds = {name: Bound.parse(declared[f"figure {name}"]) for name in seen}
        off = [
            f"{name}={number(seen[name])} (declared {bound})"
            for name, bound in bounds.items()
            if not bound.holds(seen[name])
        ]
        if off:
            yield f"the failure did not occur in this run: {', '.join(off)}"
