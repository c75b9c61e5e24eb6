"""A case as the site's lists have it: what its manifest says, and its runs without their trials."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpu_casebook.evidence import Evidence, Verdict
from gpu_casebook.files import read_text
from gpu_casebook.kinds import Grade, Variant
from gpu_casebook.manifest.case import MAX_CASE_BYTES, Case
from gpu_casebook.report.words import card, newest_hardware_first


class Entry(NamedTuple):
    """One case; `runs` are the newest first, those on hardware before others."""

    case: Case
    runs: Sequence[Evidence]

    @property
    def id(self) -> str:
        return self.case.id

    @property
    def title(self) -> str:
        return self.case.manifest.title

    @property
    def symptom(self) -> str:
        return self.case.manifest.symptom or ""

    @property
    def readme(self) -> str:
        """The story; empty if it can't be read."""
        try:
            return read_text(self.case.directory / "README.md", MAX_CASE_BYTES)
        except OSError:
            return ""

    @property
    def confirmed_on(self) -> list[str]:
        """The cards on which it was confirmed, and CPU."""
        confirmed = (run for run in self.runs if run.verdict is Verdict.CONFIRMED)
        return list(dict.fromkeys(f"{card(run.device)}{_aside(run)}" for run in confirmed))


def _aside(run: Evidence) -> str:
    return " (simulated)" if run.environment.grade is Grade.SIMULATED else ""


def entry(case: Case, runs: Sequence[Evidence]) -> Entry:
    """Return a case with its runs, without what only its own page shows: a thousand cases have gigabytes of output."""
    slim = [run.model_copy(update={"trials": [], "sanitized": [], "probes": []}) for run in runs]
    return Entry(case, newest_hardware_first(slim))


STATUS = {"fixed": "Fixed upstream", "open": "Not fixed upstream"}


class By(NamedTuple):
    """One way to look at all cases. `groups` gives the headings under which an entry stands."""

    page: str
    title: str
    groups: Callable[[Entry], Iterable[str]]


def _area(entry: Entry) -> list[str]:
    area = entry.case.manifest.area
    return [area.heading if area else "Others"]


BY = (
    By("area.md", "By what breaks", _area),
    By("kind.md", "By kind of failure", lambda entry: [entry.case.manifest.failure]),
    By("project.md", "By project", lambda entry: [entry.case.manifest.upstream.project]),
    By("status.md", "By upstream status", lambda entry: [STATUS[entry.case.manifest.upstream.status]]),
    By("card.md", "By card", lambda entry: entry.confirmed_on or ["Not confirmed anywhere yet"]),
)


def grouped(entries: Iterable[Entry], by: By) -> dict[str, list[Entry]]:
    """Return the entries under each heading, the largest group first."""
    found = dict[str, list[Entry]]()
    for each in entries:
        for heading in by.groups(each):
            found.setdefault(heading, []).append(each)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def searched(entries: Iterable[Entry]) -> list[Mapping[str, Any]]:
    """Return what the search in the browser compares a pasted text with, and what it shows of each case."""
    return [_searched(each) for each in entries]


def _searched(entry: Entry) -> Mapping[str, Any]:
    manifest = entry.case.manifest
    declared = [entry.case.expectation(name, Variant.REPRO) for name in manifest.environments]
    told = {
        "messages": [each.message for each in declared],
        "errors": [name for each in declared for name in (each.exception, each.cuda_error, each.signal)],
        "kernels": [each.sanitizer.kernel for each in declared if each.sanitizer],
    }
    shown = {
        "id": entry.id,
        "title": entry.title,
        "symptom": entry.symptom,
        "project": manifest.upstream.project,
        "failure": manifest.failure,
        "status": manifest.upstream.status,
        "on": entry.confirmed_on,
    }
    return shown | {what: sorted({each for each in texts if each}) for what, texts in told.items()}


def scripts(directory: Path) -> list[str]:
    """Return the names of the files of a case that the site offers; locks are for installers."""
    return sorted(path.name for path in directory.iterdir() if path.suffix in {".py", ".yaml"} and path.is_file())
