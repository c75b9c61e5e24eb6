"""Text as people read and write it: output of terminals made plain; counts, durations, sizes, dates, paths. Pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import groupby

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Besides control characters: what turns the direction of text round, and halves of characters."""

_WARNING = re.compile(r"^(?:\S+:\d+: \w*Warning: .*(?:\n[ \t]+\S.*)?|\[W\d.*)\n?", re.MULTILINE)
_STEP = re.compile(r"[\w.]+\[\d+\]=")
_STEPS_SHOWN = 3

DURATION = r"(?:\d+(?:\.\d+)?(?:ms|d|h|m|s))+"
"""A duration as a person writes it: 90s, 1h30m, 7d."""
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Lasting(str):
    """A note that outlasts the next one: a line of its own."""

    __slots__ = ()


def without_escapes(text: str) -> str:
    """Remove what colours a terminal, moves its cursor or sets its title."""
    return _ESCAPES.sub("", text)


def plain(text: str) -> str:
    """Return what a terminal would show in the end: the last state of overwritten lines, no control characters."""
    lines = without_escapes(text).replace("\r\n", "\n").split("\n")
    return "\n".join(_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line of at most `limit` characters; the end is cut."""
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def quiet(text: str) -> str:
    """Return what a program printed without its warnings, and of a series the first steps and the last ones."""
    kept = list[str]()
    for series, lines in groupby(_WARNING.sub("", text).split("\n"), lambda line: bool(_STEP.match(line))):
        block = list(lines)
        if series and len(block) > 2 * _STEPS_SHOWN + 1:
            left_out = len(block) - 2 * _STEPS_SHOWN
            block = [*block[:_STEPS_SHOWN], f"[... {left_out} more ...]", *block[-_STEPS_SHOWN:]]
        kept += block
    return "\n".join(kept)


def tail(text: str, lines: int, width: int) -> str:
    """Return the last lines, each cut in its middle to `width` characters, and say how many lines are left out."""
    all_lines = plain(text).strip("\n").split("\n")
    kept = [_cut(line, width) for line in all_lines[-lines:]]
    left_out = len(all_lines) - len(kept)
    return "\n".join([f"[... {left_out} lines above ...]", *kept] if left_out else kept)


def _cut(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    half = width // 2
    return f"{line[:half]} [... {len(line) - 2 * half} characters ...] {line[-half:]}"


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


def path_list(*parts: str | None) -> str:
    """Return these directories as PATH, PYTHONPATH and such have them; what is empty is left out."""
    return ":".join(part for part in parts if part)


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
