"""What changed, by the dates that evidence and watch records have."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from casebook_workbench.catalogue.site.changes import SHOWN, feed, newest, of_case, of_watch
from gpu_casebook.report.watched import Sighting, State, Watched
from tests.report.example import evidence, simulated

DAY = datetime(2026, 11, 20, 12, tzinfo=UTC)
ATOM = "{http://www.w3.org/2005/Atom}"


def sighting(state: State, days: int) -> Sighting:
    when = DAY + timedelta(days=days)
    versions = {"triton": f"3.{days}.0"}
    return Sighting(
        state=state,
        why="ran",
        versions=versions,
        moved=["triton"],
        since=when,
        last=when,
        engine="venv",
        digest="d",
        runner="r",
    )


def test_a_case_is_new_once_and_then_seen_on_other_cards() -> None:
    runs = [
        evidence(started=DAY + timedelta(days=2)),
        simulated(started=DAY),
        evidence(started=DAY + timedelta(days=1)),
    ]
    assert [(each.when.day, each.what) for each in of_case(runs)] == [
        (20, "new case, confirmed on CPU"),
        (21, "confirmed on H200"),
    ]


def test_newer_releases() -> None:
    record = Watched(case="a", history={"one": [sighting(State.STILL, 0), sighting(State.FIXED, 3)]})
    (change,) = of_watch([record])
    assert change.title == "a: fixed-since with triton 3.3.0 (environment one)"
    assert change.when == DAY + timedelta(days=3)


def test_the_newest_first_and_not_all() -> None:
    changes = [each for day in range(SHOWN + 5) for each in of_case([evidence(started=DAY + timedelta(days=day))])]
    shown = newest(changes)
    assert len(shown) == SHOWN
    assert shown[0].when == DAY + timedelta(days=SHOWN + 4)


@pytest.mark.parametrize("address", ["", "https://example.org/casebook/"])
def test_the_feed_is_atom(address: str) -> None:
    changes = newest(of_case([evidence(started=DAY), simulated(started=DAY + timedelta(days=1))]))
    top = ET.fromstring(feed(changes, address))
    assert top.tag == f"{ATOM}feed"
    assert top.findtext(f"{ATOM}updated") == "2026-11-21T12:00:00Z"
    assert len({each.text for each in top.iter(f"{ATOM}id")}) == 3
    for entry in top.iter(f"{ATOM}entry"):
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert link.get("href") == f"{address}cases/rwkv6-backward/index.html"


def test_the_same_feed_again_has_the_same_ids() -> None:
    changes = list(of_case([evidence(started=DAY)]))
    assert feed(changes) == feed(list(of_case([evidence(started=DAY)])))


def test_a_feed_without_changes() -> None:
    assert ET.fromstring(feed([])).find(f"{ATOM}entry") is None
