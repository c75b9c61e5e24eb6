import re
import time

import pytest

from failure_signature.patterns import TooSlowError, compiled, find, search

SLOW = [("^(?:a|aa)+$", "a" * 100 + "b"), ("(x+x+)+y", "x" * 5000), ("(.*?,){25}P", "1," * 200)]


@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_a_pattern_that_backtracks_for_ever_is_given_up(pattern: str, text: str) -> None:
    begun = time.process_time()
    with pytest.raises(TooSlowError, match=r"takes more than 1 s to search; write it without"):
        search(pattern, text)
    assert time.process_time() - begun < 3


def test_pages_ask_such_a_pattern_once() -> None:
    pattern, text = SLOW[0]
    assert find(pattern, text) is None
    begun = time.process_time()
    assert [find(pattern, text) for _ in range(1000)] == [None] * 1000
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\s+error", " " * 200_000),
        (r"(\s*\d+\s*)*done", "1 " * 20_000),
        ("^(a+)+$", "a" * 40 + "b"),
        ("out of memory", "x" * 500_000),
    ],
)
def test_what_can_be_searched_fast_is(pattern: str, text: str) -> None:
    assert search(pattern, text) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"a{e} {x}", "a{e} {x}"),  # a fuzzy match to `regex`
        (r"f{i}", "fi"),
        (r"x{}", "x{}"),
        (r"x{2}", "xx"),
        (r"\{a{2,}\}", "{aaa}"),
        (r"[{}]+", "{}"),
        (r"\N{DIGIT ONE}{a", "1{a"),
        (r"(?s)a.*b(?=c)", "a\nbc"),
        (r"(?i)STRASSE", "stra\xdfe"),
        (r"^b$", "a\nb"),
        (r"(?P<x>a)(?P=x)", "aa"),
    ],
)
def test_it_means_what_it_means_to_re(pattern: str, text: str) -> None:
    found, expected = search(pattern, text), re.search(pattern, text)
    assert (found and found.span()) == (expected and expected.span())


@pytest.mark.parametrize("pattern", ["(", "(?|a)", r"\p{L}", r"\h", "(((a{1000}){1000}){1000}){1000}"])
def test_what_is_none_of_pythons_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        compiled(pattern)
    assert find(pattern, "a") is None
