"""Search for a regular expression of a manifest in bounded time: `re` may take for ever over a few characters."""

import math
import re
from functools import lru_cache

import regex

LIMIT_S = 1.0
"""Seconds of one search; one in 256 KiB of output takes milliseconds."""

# Patterns are written for `re`, to which a brace is text where it repeats nothing; to `regex` it is a fuzzy match.
_BRACE = re.compile(r"(\\N\{[^}]*\}|\\.|\{\d*,?\d*\})|\{", re.DOTALL)
_COUNT = re.compile(r"\{(\d+)")
_COPIES = 100_000  # `regex` writes out what is repeated, and a million copies take seconds


class TooSlowError(Exception):
    """A pattern that backtracks for longer than LIMIT_S."""


def search(pattern: str, text: str) -> "regex.Match[str] | None":
    """Return the first match. Raises TooSlowError, and re.error where the pattern is none of Python's."""
    try:
        return compiled(pattern).search(text, timeout=LIMIT_S)
    except TimeoutError:
        what = f"/{pattern}/ takes more than {LIMIT_S:g} s to search; write it without a repetition in a repetition"
        raise TooSlowError(what) from None


def find(pattern: str, text: str) -> "regex.Match[str] | None":
    """Return the first match; None too where the pattern is none of Python's, or was too slow once: for pages."""
    if pattern in _slow:
        return None
    try:
        return search(pattern, text)
    except TooSlowError:
        _slow.add(pattern)
    except (re.error, RecursionError, OverflowError):  # evidence of a runner that took it
        pass
    return None


_slow: set[str] = set()


@lru_cache(maxsize=256)
def compiled(pattern: str) -> "regex.Pattern[str]":
    """Return the pattern, ready to be searched. Raises re.error, RecursionError or OverflowError."""
    re.compile(pattern)
    if math.prod(map(int, _COUNT.findall(pattern))) > _COPIES:
        raise re.error("its repetitions multiply to more than can be searched")
    try:
        return regex.compile(_BRACE.sub(lambda found: found[1] or r"\{", pattern))
    except regex.error as error:
        raise re.error(str(error)) from None
