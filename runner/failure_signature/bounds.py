"""Bounds on figures: "< 1e-5", ">= 0.1, < 0.5"."""

import math
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ONE = r"\s*(<=|>=|==|!=|<|>)\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
_PART = re.compile(_ONE)
PATTERN = f"^{_ONE}(,{_ONE})*$"
"""A regular expression that bounds match, for the JSON Schema."""


class Bound(NamedTuple):
    """Comparisons that must all hold. NaN satisfies none, not even "!="."""

    text: str
    parts: tuple[tuple[str, float], ...]

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> "Bound":
        """Raises ValueError with what to write instead."""
        parts = []
        for piece in text.split(","):
            match = _PART.fullmatch(piece)
            if match is None or not math.isfinite(float(match[2])):
                raise ValueError(f"{text!r} is not a bound; write comparisons such as '< 1e-5' or '>= 0.1, < 0.5'")
            parts.append((match[1], float(match[2])))
        return cls(text, tuple(parts))

    def holds(self, value: float) -> bool:
        return not math.isnan(value) and all(_COMPARE[op](value, limit) for op, limit in self.parts)

    def excludes(self, other: "Bound") -> bool:
        """Return whether no number satisfies both."""
        limits = sorted({limit for _, limit in (*self.parts, *other.parts)})
        # What holds changes only at a limit, so one number at, between and beyond the limits stands for all.
        between = [low + (high - low) / 2 for low, high in pairwise(limits)]
        return not any(self.holds(each) and other.holds(each) for each in (-math.inf, *limits, *between, math.inf))

    def __str__(self) -> str:
        return self.text
