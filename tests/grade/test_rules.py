"""What a candidate may change, and when what it hands out is right."""

import re
from typing import Any

import pytest

from casebook_workbench.grade import rules

SUBJECT = '''"""Doc."""

import math

LIMIT = 3


def inputs(seed):
    return {"x": seed}


def solve(x):
    return {"y": math.floor(x)}
'''
RULES: dict[str, Any] = {
    "may_change": ["solve"],
    "keeps": ["floor"],
    "relative": 1e-3,
    "absolute": 1e-6,
    "slower": 3.0,
    "growth": 1_000_000,
}


def changed(old: str, new: str) -> list[str]:
    assert old in SUBJECT
    return rules.breaches(SUBJECT, SUBJECT.replace(old, new), RULES)


def test_the_function_may_be_changed_and_helpers_and_imports_added() -> None:
    new = SUBJECT.replace('return {"y": math.floor(x)}', "return helped(math.floor(x))")
    new = new.replace("import math", "import math\nfrom os import path") + "\n\ndef helped(y):\n    return {'y': y}\n"
    assert rules.breaches(SUBJECT, new.replace("Doc.", "Another doc."), RULES) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("LIMIT = 3", "LIMIT = 4", "line 5: LIMIT is changed or moved; only solve may be changed"),
        ("LIMIT = 3", "", "LIMIT is gone or moved; only solve may be changed"),
        ('{"x": seed}', '{"x": 1}', "line 8: inputs is changed or moved"),
        ("def solve(x)", "def solve(x, y=1)", "solve has other arguments"),
        ("def solve(x)", "@print\ndef solve(x)", "or another decorator"),
        ("def solve(x)", "def other(x)", "solve is gone"),
        ("math.floor(x)", "int(x)", "no longer calls floor"),
        ("import math", "import cmath as math", "line 3: takes the name math, which has its meaning"),
        ("import math", "import math\nfrom os import open", "takes the name open"),
        ("import math", "import math\nfrom os import *", r"takes the name \*"),
        ("import math", "import math\nprint(1)", "line 4: a statement is changed or moved"),
        ("import math", "import math\n\ndef floor_(): pass\n\ndef inputs(seed): pass", "inputs is changed or moved"),
        ("    return {'y'".replace("'", '"'), "    global LIMIT\n    return {'y'".replace("'", '"'), "rebinds LIMIT"),
        ("def solve", "def solve(", "can't be parsed"),
    ],
)
def test_anything_else_is_told(old: str, new: str, why: str) -> None:
    found = changed(old, new)
    assert any(re.search(why, each) for each in found), found


def tensor(*values: float, shape: list[int] | None = None, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape or [len(values)], "values": list(values)}


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ({"y": 1.0005}, {"y": 1.0}),
        ({"y": 1}, {"y": 1.0}),
        (tensor(1.0005, 2.0), tensor(1.0, 2.0, dtype="float64")),
        (tensor(float("nan"), float("inf")), tensor(float("nan"), float("inf"))),
        ({"y": [1, "a", None, True]}, {"y": [1, "a", None, True]}),
    ],
)
def test_what_is_within_the_tolerance_is_equal(got: Any, want: Any) -> None:
    assert list(rules.differences(got, want, RULES)) == []


@pytest.mark.parametrize(
    ("got", "want", "what"),
    [
        ({"y": 1.002}, {"y": 1.0}, "y: 1.002 where it should be 1"),
        ({"y": True}, {"y": 1.0}, "y: True where it should be 1.0"),
        ({"y": 1.0}, {"y": 1}, "y: 1.0 where it should be 1"),
        ({"y": float("nan")}, {"y": 1.0}, "y: nan where it should be 1"),
        (None, {"y": 1}, "nothing where there should be y"),
        ({}, {"y": 1}, "y is missing"),
        ({"y": 1, "z": 1}, {"y": 1}, "z should not be there"),
        ([1], [1, 2], "1 values where there should be 2 values"),
        ([0, 0], [1, 2], "[0]: 0 where it should be 1"),
        (tensor(1.0, 2.0), tensor(1.0, 3.0), "1 of 2 values are off, such as 2 where it should be 3"),
        (tensor(float("nan")), tensor(1.0), "1 of 1 values are off, such as nan where it should be 1"),
        (tensor(1.0), tensor(1.0, 2.0), "shape [1] where it should be [2]"),
        (tensor(1.0, shape=[2]), tensor(1.0, 2.0), "shape [2] where it should be [2]"),
        (tensor(1, dtype="int64"), tensor(1.0), "int64 where it should be float32"),
        ([1.0], tensor(1.0), "[1.0] where there should be a tensor"),
    ],
)
def test_what_is_not_is_told_in_one_line(got: Any, want: Any, what: str) -> None:
    assert next(rules.differences(got, want, RULES)) == what


def run(
    *values: Any, ended: str | None = None, seconds: float = 1.0, growth: int = 0, whole: float = 9.0
) -> dict[str, Any]:
    rounds = [{"seconds": seconds, "bytes": growth * number, "values": each} for number, each in enumerate(values)]
    return {"rounds": rounds, "ended": ended, "whole": whole}


def test_the_first_round_that_is_wrong_is_told() -> None:
    assert rules.wrong(run(1, 2), [1, 2], RULES) == []
    assert rules.wrong(run(1, 3), [1, 2], RULES) == ["round 2: 3 where it should be 2"]
    assert rules.wrong(run(1, ended="killed by SIGSEGV"), [1, 2], RULES) == ["round 2: killed by SIGSEGV"]
    assert rules.wrong(run(1, ended=None), [1, 2], RULES) == ["round 2: ended too early"]
    assert rules.wrong(run(1, 2, ended="exit status 3"), [1, 2], RULES) == ["exit status 3"]


def test_a_process_that_grows_is_told() -> None:
    assert rules.grows(run(1, 1, 1, growth=900_000), RULES) == []
    assert rules.grows(run(1, 1, 1, growth=3_000_000), RULES) == ["grows by 3.0 MB a round; at most 1.0 are allowed"]
    assert rules.grows(run(1, 1, 1, growth=3_000_000), RULES | {"growth": None}) == []


def test_a_slower_path_is_told_if_it_is_slow_each_time() -> None:
    fixed = [run(1, 1, seconds=1.0)]
    assert rules.slow([run(1, 1, seconds=3.0)], fixed, RULES) == ""
    told = "4 s a round, 4.0 times as long as fixed.py; at most 3 times is allowed"
    assert rules.slow([run(1, 1, seconds=4.0)], fixed, RULES) == told
    assert rules.slow([run(1, 1, seconds=4.0), run(1, 1, seconds=1.0)], fixed, RULES) == ""
    assert rules.slow([run(1, 1, seconds=0.05)], [run(1, 1, seconds=0.001)], RULES) == ""


def test_work_before_the_rounds_is_told() -> None:
    assert rules.slow([run(1, 1, whole=24.0)], [run(1, 1, whole=9.0)], RULES).startswith("24.0 s in all")


def test_the_first_round_of_a_run_only_warms_it_up() -> None:
    warmed = run(1, 1, 1)
    warmed["rounds"][0]["bytes"] = -(10**9)
    assert rules.grows(warmed, RULES) == []
    quick_once = run(1, 1, seconds=4.0)
    quick_once["rounds"][0]["seconds"] = 1.0
    assert rules.slow([quick_once], [run(1, 1)], RULES).startswith("4 s a round")
