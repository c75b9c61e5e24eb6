from datetime import UTC, datetime

import pytest

from gpu_casebook import words


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0 s"), (0.254, "0.25 s"), (6.84, "6.8 s"), (59.94, "59.9 s"), (131.4, "2 min 11 s"), (3725, "1 h 2 min")],
)
def test_seconds(value: float, told: str) -> None:
    assert words.seconds(value) == told


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (6_412_345_678, "6.41 GB"), (2 * 10**12, "2 TB")]
)
def test_size(value: int, told: str) -> None:
    assert words.size(value) == told


def test_spread() -> None:
    assert words.spread([6.81, 6.84]) == "6.8 s"
    assert words.spread([9.1, 6.8]) == "6.8 s to 9.1 s"


def test_instants_are_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert (words.date(moment), words.instant(moment)) == ("2026-01-02", "2026-01-02 03:04 UTC")
