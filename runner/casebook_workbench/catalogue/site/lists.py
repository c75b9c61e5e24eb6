"""The site's lists of cases, and what its search in the browser compares."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from casebook_workbench.catalogue.entry import Entry
from casebook_workbench.catalogue.match.known import Known

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
    By("kind.md", "By kind of failure", lambda entry: [entry.facts["failure"]]),
    By("project.md", "By project", lambda entry: [entry.facts["project"]]),
    By("status.md", "By upstream status", lambda entry: [STATUS[entry.facts["status"]]]),
    By("card.md", "By card", lambda entry: entry.confirmed_on or ["Not confirmed anywhere yet"]),
)


def grouped(entries: Iterable[Entry], by: By) -> dict[str, list[Entry]]:
    """Return the entries under each heading, the largest group first."""
    found = dict[str, list[Entry]]()
    for each in entries:
        for heading in by.groups(each):
            found.setdefault(heading, []).append(each)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def searched(entry: Entry) -> Mapping[str, Any]:
    """Return what the search in the browser compares a pasted text with, and what it shows of a case."""
    known = Known.of(entry.case.id, entry.case.manifest.model_dump(mode="json"))
    names = ("id", "title", "symptom", "project", "failure")
    return {
        **{name: getattr(known, name) for name in names},
        "status": entry.facts["status"],
        "on": entry.confirmed_on,
        "messages": sorted(known.messages),
        "errors": sorted({*known.exceptions, *known.cuda_errors, *known.signals}),
        "kernels": known.kernels,
    }


def scripts(directory: Path) -> list[str]:
    """Return the names of the files of a case that the site offers; locks are for installers."""
    return sorted(path.name for path in directory.iterdir() if path.suffix in {".py", ".yaml"} and path.is_file())
