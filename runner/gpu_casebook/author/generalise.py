"""A message as a regular expression that matches it again, with what differs from run to run left open. Pure."""

import re
from collections.abc import Callable, Iterator

LENGTH = 160
"""Characters of a message that are taken: enough to know it by, and what comes after tends to vary."""

_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_UNIT = r"[KMGT]i?B|bytes|ms|us|seconds|minutes|s"
_PARTS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"0x[0-9a-fA-F]+", lambda _: "0x[0-9a-fA-F]+"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", lambda _: "[0-9a-f-]+"),
    (r"(?<![\w.:/])(?:/[\w.+@~-]+){2,}/?", lambda _: r"/\S+"),
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?Z?)?", lambda _: r"\d[\d:.,TZ -]*"),
    (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", lambda _: r"\d[\d:.,]*"),
    (r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b", lambda _: r"\d[\d.:]*"),
    (
        r"\b(?i:pid|process|thread|port)[ :=#]{1,2}\d{2,}\b",
        lambda found: _escaped(found[0].rstrip("0123456789")) + r"\d+",
    ),
    (rf"\b\d+(?:\.\d+)? ?(?:{_UNIT})\b", lambda found: r"\d[\d.]*" + found[0].lstrip("0123456789.")),
    (r"\b\d+\.\d{3,}(?:e[+-]?\d+)?\b", lambda _: r"\d[\d.e+-]*"),
)
_VOLATILE = [(re.compile(pattern), write) for pattern, write in _PARTS]


def pattern(text: str, length: int = LENGTH) -> str:
    """A regular expression found in `text`, and in the same text with other addresses, paths, times, sizes and pids."""
    written: list[str] = []
    taken = 0
    for start, end, piece in _pieces(text):
        if taken + (end - start) > length and written:
            break
        taken += end - start
        written.append(piece)
    return "".join(written).rstrip() if len(written) > 1 else "".join(written)


def _pieces(text: str) -> Iterator[tuple[int, int, str]]:
    """Volatile parts whole, and everything else word by word, as (start, end, pattern)."""
    at = 0
    while at < len(text):
        found = [(match, write) for volatile, write in _VOLATILE if (match := volatile.search(text, at))]
        match, write = min(found, key=lambda each: (each[0].start(), -each[0].end()), default=(None, None))
        until = match.start() if match else len(text)
        for word in re.finditer(r"\s*\S+|\s+", text[at:until]):
            yield at + word.start(), at + word.end(), _escaped(word[0])
        if match is None or write is None:
            return
        yield match.start(), match.end(), write(match)
        at = match.end()


def _escaped(text: str) -> str:
    """Unlike re.escape, this leaves alone what has no meaning outside of verbose patterns: spaces, hyphens, #."""
    return _SPECIAL.sub(r"\\\g<0>", text)
