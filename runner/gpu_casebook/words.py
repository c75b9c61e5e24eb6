"""Counts, durations, sizes and dates as a person reads and writes them. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

DURATION = r"(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+"
"""A duration as a person writes it: 90s, 1h30m, 7d."""
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def counted(counts: Mapping[str, int]) -> str:
    """Return counts in words: 3 confirmed, 1 skipped. Zeros are left out."""
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def duration(text: str) -> float:
    """Return the seconds of a `DURATION`. Raises ValueError for any other text."""
    if not re.fullmatch(DURATION, text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|d|h|m|s)", text))


def seconds(value: float) -> str:
    """Return a duration in words: 0.25 s, 44.6 s, 2 min 11 s, 1 h 2 min, 7 d 0 h."""
    if value < 60:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def size(value: int) -> str:
    """Return bytes in powers of 1000: 6.4 GB."""
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def spread(values: list[float]) -> str:
    """Return the range of durations: 6.8 s, or 6.8 s to 9.1 s."""
    if not values:
        return "no time"
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else f"{low} to {high}"


def date(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d}"


def instant(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d %H:%M} UTC"


def utc(moment: datetime) -> datetime:
    """Return the moment in UTC; one without a zone is taken as UTC, never as this machine's."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
