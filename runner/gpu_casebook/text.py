"""What terminals print, made into plain text. Pure."""

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Besides control characters: what turns the direction of text round, and halves of characters."""


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
