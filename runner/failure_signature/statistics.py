"""Proportions: their intervals, and how many trials they ask for. Pure."""

import math
from typing import NamedTuple


class Interval(NamedTuple):
    low: float
    high: float


_Z95 = 1.959963984540054


def wilson(k: float, n: int) -> Interval:
    """Return the 95 % score interval of a proportion after k of n (Wilson 1927); 0 to 1 if n is 0.

    A `k` that is not whole is an expected number.
    """
    if n == 0:
        return Interval(0.0, 1.0)
    p, zz = k / n, _Z95**2
    middle = p + zz / (2 * n)
    half = _Z95 * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    low, high = (middle - half) / (1 + zz / n), (middle + half) / (1 + zz / n)
    return Interval(0.0 if k == 0 else low, 1.0 if k == n else high)


def left_open(n: int) -> float:
    """Return the highest rate of a failure that n >= 1 trials without it leave open: 95 %, one-sided, exact."""
    return 1.0 - math.pow(0.05, 1 / n)


def clean_trials_needed(p: float, alpha: float) -> int:
    """Return how many trials without the failure make it unlikely, at level `alpha`, that it still comes at rate `p`.

    The least n with (1 - p)^n <= alpha. Raises ValueError unless 0 < p <= 1 and 0 < alpha < 1.
    """
    if not (0 < p <= 1 and 0 < alpha < 1):
        raise ValueError(f"needs 0 < p <= 1 and 0 < alpha < 1, not p={p}, alpha={alpha}")
    if p == 1:
        return 1
    n = math.log(alpha) / math.log1p(-p)
    whole = round(n)
    return whole if math.isclose(n, whole, rel_tol=1e-12) else math.ceil(n)


def trials_to_refute(least_rate: float) -> int:
    """Return the least n such that no failure in n trials puts the 95 % interval below this rate, which must be > 0."""
    n = 1
    while wilson(0, n).high >= least_rate:
        n += 1
    return n
