"""What is kept of looking again and again, and what of it is news."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpu_casebook.report.pages import index
from gpu_casebook.report.watched import Sighting, State, Watched, all_watched, known, section, watched_path


def sighting(state: State, day: int, version: str = "1.0", **more: object) -> Sighting:
    at = datetime(2026, 11, day, tzinfo=UTC)
    given = {"fix": True, "why": "as it was", "versions": {"thing": version}, "moved": ["thing"]} | more
    return Sighting(state=state, since=at, last=at, engine="venv", digest="d", runner="0.1", **given)


def watched(*seen: Sighting) -> Watched:
    record = Watched(case="tiny")
    for each in seen:
        record = record.with_sighting("cpu", each)
    return record


class TestHistory:
    def test_the_same_again_makes_the_last_one_longer(self) -> None:
        record = watched(sighting(State.STILL, 1), sighting(State.STILL, 2), sighting(State.STILL, 3))
        [one] = record.history["cpu"]
        assert (one.since.day, one.last.day) == (1, 3)

    def test_a_new_release_is_a_sighting_of_its_own_and_no_change(self) -> None:
        record = watched(sighting(State.STILL, 1), sighting(State.STILL, 2, "1.1"))
        assert len(record.history["cpu"]) == 2
        assert not list(record.changes())

    def test_what_a_bisection_told_is_not_forgotten(self) -> None:
        record = watched(sighting(State.FIXED, 1, first_fixed=["0.9"]), sighting(State.FIXED, 2))
        assert record.history["cpu"][0].first_fixed == ["0.9"]

    def test_environments_do_not_mix(self) -> None:
        record = watched(sighting(State.STILL, 1)).with_sighting("gpu", sighting(State.FIXED, 2))
        assert not list(record.changes())


class TestChanges:
    def test_a_first_sighting_is_none(self) -> None:
        assert not list(watched(sighting(State.FIXED, 1)).changes())

    @pytest.mark.parametrize("state", [state for state in State if state is not State.STILL])
    def test_every_other_state_is_one(self, state: State) -> None:
        [change] = watched(sighting(State.STILL, 1), sighting(state, 2, "1.1")).changes()
        assert (change.before.state, change.after.state) == (State.STILL, state)

    def test_a_fix_that_ceases_to_hold_is_one(self) -> None:
        [change] = watched(sighting(State.STILL, 1), sighting(State.STILL, 2, fix=False)).changes()
        assert change.after.fix is False

    def test_a_fix_that_could_not_be_tried_is_none(self) -> None:
        assert not list(watched(sighting(State.CANNOT, 1, fix=None), sighting(State.CANNOT, 2, fix=True)).changes())


class TestOnDisk:
    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        record = watched(sighting(State.STILL, 1), sighting(State.FIXED, 2))
        record.write(watched_path(tmp_path, "tiny"))
        assert known(tmp_path, "tiny") == record
        assert list(all_watched(tmp_path, print)) == [record]
        assert known(tmp_path, "other") == Watched(case="other")

    @pytest.mark.parametrize("text", ["", "{}", '{"case": "tiny", "schema_version": 2}'])
    def test_what_can_not_be_read_is_one_line(self, tmp_path: Path, text: str) -> None:
        path = watched_path(tmp_path, "tiny")
        path.parent.mkdir()
        path.write_text(text)
        unread: list[str] = []
        assert all_watched(tmp_path, unread.append) == []
        assert re.search(r"tiny\.json: (can't be read as a record|schema_version 2).*remove it", unread[0])


class TestIndex:
    def test_changes_and_what_is_fixed_are_on_the_page(self) -> None:
        record = watched(
            sighting(State.STILL, 1), sighting(State.FIXED, 2, "1.1", first_fixed=["1.0.5"], why="3 quiet | trials")
        )
        page = index([], newer=section([record]))
        assert "| tiny | `cpu` | thing 1.1 | 1.0.5 | 2026-11-02 |" in page
        row = "| 2026-11-02 | tiny | `cpu` | still-reproduces | **fixed-since** | thing 1.1 | 3 quiet \\| trials |"
        assert row in page

    def test_the_newest_change_comes_first_and_old_ones_go(self) -> None:
        states = [State.STILL, State.OTHERWISE] * 14
        record = watched(*(sighting(state, day) for day, state in enumerate(states, 1)))
        rows = [line for line in index([], newer=section([record])).splitlines() if line.startswith("| 2026")]
        assert [row[10:12] for row in rows] == [f"{day:02}" for day in range(28, 8, -1)]

    def test_a_fix_that_does_not_hold_is_told(self) -> None:
        page = index([], newer=section([watched(sighting(State.STILL, 1), sighting(State.STILL, 2, fix=False))]))
        assert "**still-reproduces**, the fix does not hold" in page

    def test_without_news_the_page_is_as_it_was(self) -> None:
        assert index([], newer=section([watched(sighting(State.STILL, 1))])) == index([])
        assert "Changes" not in index([])

    def test_a_case_that_fails_again_is_no_longer_listed_as_fixed(self) -> None:
        page = index([], newer=section([watched(sighting(State.FIXED, 1), sighting(State.STILL, 2, "1.1"))]))
        assert "Fixed by newer releases" not in page
