"""What the trials of a case need, as far as evidence of earlier runs tells.

If that is known, the first trial need not run alone, and a run of the corpus can start with the longest cases.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from failure_signature.kinds import Variant
from gpu_casebook.devices import hardware
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_files, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.places import reports_of


@dataclass(frozen=True)
class Needs:
    """The most that trials of a case in one environment took, on any machine."""

    longest_s: float = 0.0
    """How long one trial takes, divided by how many ran at once if that is known; 0 if unknown."""
    memory_bytes: int = 0
    """How much memory of a GPU a trial takes; 0 if unknown."""
    trials_s: float = 0.0
    """How long all trials take one after the other, with those under compute-sanitizer; 0 if unknown."""


def needs(case: Case, environment: str, trials: int | None = None) -> Needs:
    """Return what evidence tells, the corpus's and the user's own.

    If there is evidence of the present manifest and scripts, only that counts; otherwise evidence of earlier ones does.
    `trials` of each variant are to run (`--trials`), by default as many as in the evidence.
    """
    found, digest = list(_runs(case, environment)), case.digest()
    runs = [run for run in found if run.case.digest == digest] or found
    return Needs(
        _longest_s(runs),
        max((run.sharing.memory_bytes or 0 for run in runs if run.sharing), default=0),
        max((_trials_s(run, trials) for run in runs), default=0.0),
    )


def _trials_s(run: Evidence, trials: int | None) -> float:
    took_s = sum(trial.duration_s for trial in run.trials)
    if trials and run.trials:
        took_s *= len(Variant) * trials / len(run.trials)
    return took_s + sum(trial.duration_s for trial in run.sanitized)


def _longest_s(runs: Sequence[Evidence]) -> float:
    """Return the time of the longest trial.

    From machines with as many cores as this one, it is divided by how many ran at once. Without those, it is as it was.
    """
    alike = [run for run in runs if (there := run.environment.attestation) and there.cpus == hardware.cores()]
    if alike:
        return max((alone_s for run in alike for alone_s in _alone_s(run)), default=0.0)
    return max((trial.duration_s for run in runs for trial in run.trials), default=0.0)


def _alone_s(run: Evidence) -> Iterator[float]:
    """Yield how long each trial took, divided by how many ran at once on average meanwhile.

    The time of a trial that the time limit ended is not divided: how long it would have taken is not known.
    """
    times = [(each.started.timestamp(), each.duration_s) for each in run.trials if each.started]
    for trial in run.trials:
        took_s, together_s = trial.duration_s, 0.0
        if trial.started and took_s and not trial.observation.timed_out:
            begun = trial.started.timestamp()
            together_s = sum(max(0.0, min(begun + took_s, at + each_s) - max(begun, at)) for at, each_s in times)
        yield took_s / max(1.0, together_s / (took_s or 1.0))


def _runs(case: Case, environment: str) -> Iterator[Evidence]:
    root = case.directory.parents[1]
    for reports in dict.fromkeys(reports_of(root, published=published) for published in (True, False)):
        for path in evidence_files(reports, case.id, environment):
            with suppress(CasebookError):  # what can't be read tells nothing
                yield load(path)
