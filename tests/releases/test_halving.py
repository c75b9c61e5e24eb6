"""The search as such: lines of versions that are numbers, and calls made by a rule."""

import math
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from casebook_workbench.releases import halving
from casebook_workbench.releases.records import Call


def searched(length: int, first_bad: int, skipped: Collection[int]) -> tuple[list[str], dict[str, Call], int]:
    """The line of so many versions, the calls that a search ends with, and the steps it took between the ends."""
    line = [str(number) for number in range(length)]
    calls = {line[0]: Call.GOOD, line[-1]: Call.BAD}
    while version := halving.next_version(line, calls):
        assert version not in calls
        calls[version] = _call(int(version), first_bad, skipped)
    return line, calls, len(calls) - 2


def _call(number: int, first_bad: int, skipped: Collection[int]) -> Call:
    return Call.SKIP if number in skipped else Call.BAD if number >= first_bad else Call.GOOD


lengths = st.integers(2, 200)


@st.composite
def lines(draw: st.DrawFn) -> tuple[int, int, set[int]]:
    length = draw(lengths)
    first_bad = draw(st.integers(1, length - 1))
    return length, first_bad, draw(st.sets(st.integers(1, max(length - 2, 1)), max_size=length - 2))


@given(lines())
def test_the_answer_has_the_first_bad_one_and_beside_it_only_skipped_ones(
    given_line: tuple[int, int, set[int]],
) -> None:
    length, first_bad, skipped = given_line
    line, calls, _ = searched(length, first_bad, skipped)
    first = halving.first(line, calls, fixed=False)
    assert str(first_bad) in first
    assert all(int(version) in skipped for version in first[:-1])
    assert calls[first[-1]] is Call.BAD
    assert calls[line[line.index(first[0]) - 1]] is Call.GOOD


@given(lines())
def test_steps_are_no_more_than_the_logarithm_and_the_skips(given_line: tuple[int, int, set[int]]) -> None:
    length, first_bad, skipped = given_line
    _, calls, steps = searched(length, first_bad, skipped)
    skips = sum(call is Call.SKIP for call in calls.values())
    assert steps - skips <= math.ceil(math.log2(length))
    assert steps - skips <= halving.most_calls(length - 2)


@given(lengths, st.data())
def test_without_skips_the_answer_is_one_release(length: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, length - 1))
    line, calls, _ = searched(length, first_bad, ())
    assert halving.first(line, calls, fixed=False) == [str(first_bad)]


def test_looking_for_the_fix_the_line_is_the_other_way_round() -> None:
    line = ["5", "4", "3", "2", "1"]
    calls = {"5": Call.GOOD, "1": Call.BAD, "3": Call.GOOD, "2": Call.SKIP}
    assert halving.first(line, calls, fixed=True) == ["2", "3"]
    assert halving.next_version(line, calls) is None


def test_nothing_between_the_ends_is_an_answer_at_once() -> None:
    assert halving.next_version(["1", "2"], {}) is None
    assert halving.first(["1", "2"], {}, fixed=False) == ["2"]


class TestDoubt:
    line = ("0", "1", "2", "3", "4")

    def test_a_failure_that_always_comes_leaves_none(self) -> None:
        calls = {"0": Call.GOOD, "2": Call.GOOD, "3": Call.BAD, "4": Call.BAD}
        assert halving.doubt(self.line, calls, {"0": 1, "2": 1}, 1.0) == 0.0

    def test_it_is_the_share_of_the_wrong_places_weighted_by_their_silence(self) -> None:
        """First bad 3 is the answer; 2 or 1 would need one silence of 3 trials at 1/2, 0 another one of 2."""
        calls = {"0": Call.GOOD, "2": Call.GOOD, "3": Call.BAD, "4": Call.BAD}
        wrong = 0.5**3 + 0.5**3 + 0.5**5
        assert math.isclose(halving.doubt(self.line, calls, {"0": 2, "2": 3}, 0.5), wrong / (wrong + 1))

    def test_an_open_answer_is_wrong_less_often(self) -> None:
        calls = {"0": Call.GOOD, "1": Call.GOOD, "2": Call.SKIP, "3": Call.BAD}
        wrong = 0.5**3 + 0.5**5
        assert math.isclose(halving.doubt(self.line, calls, {"0": 2, "1": 3}, 0.5), wrong / (wrong + 2))

    @given(lines(), st.floats(0.05, 0.99), st.integers(1, 60))
    def test_more_silence_never_adds_to_it(self, given_line: tuple[int, int, set[int]], rate: float, n: int) -> None:
        length, first_bad, skipped = given_line
        line, calls, _ = searched(length, first_bad, skipped)
        few, more = (halving.doubt(line, calls, dict.fromkeys(line, each), rate) for each in (n, n + 1))
        assert 0 <= more <= few < 1
