"""What terminals print, made into plain text. Pure."""

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]?"
)


def without_escapes(text: str) -> str:
    """Without what colours a terminal, moves its cursor or sets its title."""
    return _ESCAPES.sub("", text)


def one_line(text: str, limit: int = 200) -> str:
    """On one line of at most `limit` characters; the end gives way."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."
