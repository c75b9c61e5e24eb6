import math

import pytest

from gpu_casebook.manifest.bounds import Bound


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
