from datetime import UTC, datetime

import pytest

from failure_signature.text import (
    counted,
    date,
    duration,
    instant,
    one_line,
    plural,
    seconds,
    size,
    spread,
    without_escapes,
)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[1;38;5;196mred\x1b[m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b(Btext", "text"),
        ("\x1b]never ended\nrel_err=1", "never ended\nrel_err=1"),
        ("end\x1b", "end"),
        ("plain [31m", "plain [31m"),
    ],
)
def test_without_escapes(text: str, plain: str) -> None:
    assert without_escapes(text) == plain


def test_one_line() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"
    assert one_line("x" * 50, limit=10) == "xxxxxxx..."
    assert one_line("x" * 10, limit=10) == "xxxxxxxxxx"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0 s"),
        (0.254, "0.25 s"),
        (6.84, "6.8 s"),
        (59.94, "59.9 s"),
        (131.4, "2 min 11 s"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_seconds(value: float, told: str) -> None:
    assert seconds(value) == told


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("500ms", 0.5), ("1d12h", 129_600), ("0s", 0)]
)
def test_duration(text: str, value: float) -> None:
    assert duration(text) == value


@pytest.mark.parametrize("text", ["", "90", "1w", "s", "1 h", "1h, 2m", "1.5.2s"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (6_412_345_678, "6.41 GB"), (2 * 10**12, "2 TB")]
)
def test_size(value: int, told: str) -> None:
    assert size(value) == told


def test_spread() -> None:
    assert spread([6.81, 6.84]) == "6.8 s"
    assert spread([9.1, 6.8]) == "6.8 s to 9.1 s"


def test_instants_are_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert (date(moment), instant(moment)) == ("2026-01-02", "2026-01-02 03:04 UTC")


def test_counts() -> None:
    assert [plural(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert counted({"confirmed": 3, "drifted": 0, "skipped": 1}) == "3 confirmed, 1 skipped"
