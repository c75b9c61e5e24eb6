"""Marked blanks: what the author of a case has yet to fill in or to confirm. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

MARK = "TODO(case)"


class Blank(NamedTuple):
    line: int
    what: str


def blank(what: str) -> str:
    return f"{MARK}: {what}"


def blanks(text: str) -> Iterator[Blank]:
    """Each line with the mark, and what stands after it."""
    if MARK not in text:
        return
    for number, line in enumerate(text.splitlines(), 1):
        before, found, after = line.partition(MARK)
        if found:
            quote = before[-1:] if before[-1:] in {"'", '"'} else ""
            yield Blank(number, after.removeprefix(":").strip().removesuffix(quote))
