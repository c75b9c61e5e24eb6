import math

import pytest

from failure_signature.bounds import Bound


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("< 1e-5", [0.0, -1.0, 9e-6, -math.inf], [1e-5, 2e-5, math.inf]),
        ("<=2", [2, 1.5], [2.0000001]),
        ("> 0.5", [0.51, math.inf], [0.5, -math.inf]),
        (">= -.5", [-0.5, 0], [-0.51]),
        ("== 3", [3.0], [2.999]),
        ("!= 0", [1, math.inf], [0.0]),
        (">= 0.1, < 0.5", [0.1, 0.49], [0.09, 0.5]),
        ("  >  +1.e2 ", [101], [100]),
    ],
)
def test_holds(text: str, inside: list[float], outside: list[float]) -> None:
    bound = Bound.parse(text)
    assert all(map(bound.holds, inside))
    assert not any(map(bound.holds, outside))
    assert str(bound) == text


@pytest.mark.parametrize("text", ["< 1", "!= 1", ">= -1, < 5", "== 0"])
def test_nan_satisfies_nothing(text: str) -> None:
    assert not Bound.parse(text).holds(math.nan)


@pytest.mark.parametrize(
    "text", ["", "1e-5", "< ", "< 1e-5,", "=< 1", "< nan", "> inf", "< 1e999", "< 1 2", "~ 3", "<> 1"]
)
def test_what_can_not_be_read_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a bound; write comparisons such as '< 1e-5' or '>= 0\.1, < 0\.5'"):
        Bound.parse(text)


@pytest.mark.parametrize(
    ("one", "other", "excludes"),
    [
        ("> 1e-2", "< 1e-5", True),
        ("< 1", ">= 1", True),
        ("<= 1", ">= 1", False),
        ("== 3", "== 2", True),
        ("== 3", "!= 3", True),
        ("== 3", "> 2, < 4", False),
        ("> 0.24, < 0.26", "< 0.25", False),
        ("> 5", "> 7", False),
        ("!= 3", "!= 4", False),
    ],
)
def test_what_no_number_satisfies(one: str, other: str, excludes: bool) -> None:  # noqa: FBT001
    assert Bound.parse(one).excludes(Bound.parse(other)) is excludes
    assert Bound.parse(other).excludes(Bound.parse(one)) is excludes
