"""What changed: cases that were seen for the first time, on a card for the first time, and with newer releases.

From the dates of the evidence and of the watch records alone, so that it is the same without a history in git.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from failure_signature.text import utc
from gpu_casebook.evidence import Evidence
from gpu_casebook.report.watched import Watched
from gpu_casebook.report.worth import card

SHOWN = 100
_ATOM = "http://www.w3.org/2005/Atom"
_NAMES = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of addresses (RFC 4122)


class Change(NamedTuple):
    """One change. `case` is an id; `told` is one line."""

    when: datetime
    case: str
    what: str
    told: str

    @property
    def title(self) -> str:
        return f"{self.case}: {self.what}"

    @property
    def id(self) -> str:
        """A name that stays the same from build to build."""
        return uuid.uuid5(_NAMES, f"casebook {self.case} {self.what} {self.when.isoformat()}").urn


def of_case(runs: Iterable[Evidence]) -> Iterator[Change]:
    """Yield the first evidence of a case, then the first from each further card."""
    seen = set[str]()
    for run in sorted(runs, key=lambda run: utc(run.started)):
        where = card(run.device)
        if where not in seen:
            new = "new case, " if not seen else ""
            yield Change(utc(run.started), run.case.id, f"{new}{run.verdict} on {where}", run.case.title)
            seen.add(where)


def of_watch(records: Iterable[Watched]) -> Iterator[Change]:
    """Yield what newer releases changed."""
    for change in (change for record in records for change in record.changes()):
        what = f"{change.after.state} with {change.after.packages} (environment {change.environment})"
        yield Change(utc(change.after.since), change.case, what, change.after.why)


def newest(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: (change.when, change.case), reverse=True)[:SHOWN]


def feed(changes: Sequence[Change], address: str = "") -> str:
    """Return the changes as an Atom feed. Without the site's address its links are relative to the feed itself."""
    top = ET.Element("feed", xmlns=_ATOM)
    ET.SubElement(top, "title").text = "Casebook: what changed"
    ET.SubElement(top, "id").text = address or uuid.uuid5(_NAMES, "casebook feed").urn
    ET.SubElement(top, "updated").text = _instant(changes[0].when if changes else datetime.fromtimestamp(0, UTC))
    ET.SubElement(top, "link", rel="self", href=f"{address}feed.xml")
    ET.SubElement(top, "link", rel="alternate", href=f"{address}changes.html")
    ET.SubElement(ET.SubElement(top, "author"), "name").text = "Casebook"
    for change in changes:
        entry = ET.SubElement(top, "entry")
        ET.SubElement(entry, "title").text = change.title
        ET.SubElement(entry, "id").text = change.id
        ET.SubElement(entry, "updated").text = _instant(change.when)
        ET.SubElement(entry, "link", href=f"{address}cases/{change.case}/index.html")
        ET.SubElement(entry, "summary").text = change.told
    ET.indent(top)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(top, encoding="unicode")}\n'


def _instant(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%dT%H:%M:%SZ}"
