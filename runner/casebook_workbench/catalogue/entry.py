"""One case as list, show, export and site have it: its manifest, its README and its runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from failure_signature.kinds import Grade
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence, evidence_files
from gpu_casebook.manifest.case import Case
from gpu_casebook.report.readme import Readme
from gpu_casebook.report.worth import card, newest_hardware_first


def facts(case: Case) -> dict[str, Any]:
    """Return what is said first of a case wherever it is listed, as JSON."""
    manifest = case.manifest
    return {
        "id": case.id,
        "title": manifest.title,
        "symptom": manifest.symptom,
        "failure": manifest.failure.value,
        "project": manifest.upstream.project,
        "status": manifest.upstream.status,
    }


@dataclass(frozen=True)
class Entry:
    """One case, with its evidence by file."""

    case: Case
    runs: Mapping[Path, Evidence]

    @classmethod
    def read(cls, case: Case, *reports: Path, unread: Callable[[str], object] = lambda _: None) -> "Entry":
        """Read a case's evidence in these directories of reports; `unread` is told of each file that can't be read."""
        paths = [path for place in dict.fromkeys(reports) for path in evidence_files(place, case.id)]
        return cls(case, dict(Evidence.read_all(paths, unread)))

    @cached_property
    def facts(self) -> dict[str, Any]:
        return facts(self.case)

    @cached_property
    def readme(self) -> Readme:
        return Readme.read(self.case.directory)

    @cached_property
    def newest(self) -> list[Evidence]:
        """Its runs: the newest first, those on hardware before others."""
        return newest_hardware_first([*self.runs.values()])

    def without_output(self) -> "Entry":
        """Return it without what only its own page shows: the trials of a thousand cases are gigabytes."""
        slim: dict[str, Any] = {"trials": [], "sanitized": [], "probes": []}
        return replace(self, runs={path: run.model_copy(update=slim) for path, run in self.runs.items()})

    @property
    def confirmed_on(self) -> list[str]:
        """The cards on which it was confirmed, and CPU."""
        confirmed = (run for run in self.newest if run.verdict is Verdict.CONFIRMED)
        simulated = {Grade.SIMULATED: " (simulated)"}
        return list(dict.fromkeys(card(run.device) + simulated.get(run.environment.grade, "") for run in confirmed))
