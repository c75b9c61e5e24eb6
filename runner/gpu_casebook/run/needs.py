"""What the trials of a case need, as far as evidence of earlier runs tells.

The first one need not run alone then, and a run of the corpus can start with the longest.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import Evidence, evidence_files, load
from gpu_casebook.manifest.case import Case
from gpu_casebook.places import reports_of


@dataclass(frozen=True)
class Needs:
    """The most that trials of a case in one environment took, on any machine."""

    longest_s: float = 0.0
    """Of one trial, by how many of its run went on at once on average: all may have shared a core. 0 if unknown."""
    memory_bytes: int = 0
    """Of a GPU; 0 if unknown."""
    trials_s: float = 0.0
    """Of all trials of a run, also those under compute-sanitizer, added up; 0 if unknown."""


def needs(case: Case, environment: str) -> Needs:
    """Return what evidence tells, the corpus's and a user's own: of this manifest and scripts, else of earlier ones."""
    found, digest = list(_runs(case, environment)), case.digest()
    runs = [run for run in found if run.case.digest == digest] or found
    return Needs(
        max((trial.duration_s / _at_once(run) for run in runs for trial in run.trials), default=0.0),
        max((run.sharing.memory_bytes or 0 for run in runs if run.sharing), default=0),
        max((sum(trial.duration_s for trial in [*run.trials, *run.sanitized]) for run in runs), default=0.0),
    )


def _at_once(run: Evidence) -> float:
    """Return how many trials of a run went on at once on average; fewer where it had probes, or waited for a GPU."""
    return max(1.0, sum(trial.duration_s for trial in run.trials) / (run.durations.trials_s or math.inf))


def _runs(case: Case, environment: str) -> Iterator[Evidence]:
    root = case.directory.parents[1]
    for reports in dict.fromkeys(reports_of(root, published=published) for published in (True, False)):
        for path in evidence_files(reports, case.id, environment):
            with suppress(CasebookError):  # what can't be read tells nothing
                yield load(path)
