"""Blanks, links, and messages as patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_casebook.author.blanks import MARK, blank, blanks
from gpu_casebook.author.generalise import LENGTH, pattern
from gpu_casebook.author.link import parse
from gpu_casebook.errors import UsageError


class TestBlanks:
    def test_each_is_told_with_its_line(self) -> None:
        text = f"a\nb: 1  # {blank('open, or fixed')}\ntitle: '{blank('one line')}'\n{MARK}\n"
        assert list(blanks(text)) == [(2, "open, or fixed"), (3, "one line"), (4, "")]

    def test_a_quote_that_belongs_to_the_text_stays(self) -> None:
        assert next(blanks(f"# {blank('type float')}'")).what == "type float'"

    def test_none(self) -> None:
        assert list(blanks("TODO: something else\n")) == []


class TestLink:
    @pytest.mark.parametrize(
        ("text", "url"),
        [
            ("https://github.com/o/n/issues/12", "https://github.com/o/n/issues/12"),
            ("http://www.github.com/o/n/issues/12/", "https://github.com/o/n/issues/12"),
            ("github.com/o/n/pull/3/files#diff-1", "https://github.com/o/n/pull/3"),
            ("https://github.com/o/n.x/discussions/7?sort=new#c-1", "https://github.com/o/n.x/discussions/7"),
            ("o/n#9", "https://github.com/o/n/issues/9"),
        ],
    )
    def test_what_is_understood(self, text: str, url: str) -> None:
        assert parse(text).url == url

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "12",
            "o/n",
            "https://github.com/o/n",
            "https://github.com/o/n/issues",
            "https://github.com/o/n/issues/x",
            "https://github.com/o/n/issues/0",
            "https://github.com/o/n/actions/runs/1",
            "https://gitlab.com/o/n/-/issues/3",
            "https://github.com.evil.org/o/n/issues/3",
            "javascript:alert(1)",
        ],
    )
    def test_anything_else_is_refused_with_the_forms(self, text: str) -> None:
        with pytest.raises(UsageError, match="not a report on GitHub; write https://github"):
            parse(text)


class TestPattern:
    @pytest.mark.parametrize(
        ("text", "again"),
        [
            ("object at 0x7f3a00ff", "object at 0x1"),
            ("in /home/joe/x/y.py line 3", "in /data/y.py line 3"),
            ("failed at 2026-11-21 10:11:12,123 there", "failed at 2027-01-02 00:00:00 there"),
            ("took 3.25 s here", "took 17 s here"),
            ("Tried to allocate 2.00 GiB. GPU 0", "Tried to allocate 17.50 GiB. GPU 0"),
            ("process 1234 died", "process 77 died"),
            ("connect 10.0.0.1:29500 refused", "connect 10.9.8.7:29501 refused"),
            ("loss is 0.123456 now", "loss is 0.9871e-3 now"),
        ],
    )
    def test_what_differs_from_run_to_run_is_left_open(self, text: str, again: str) -> None:
        found = pattern(text)
        assert re.search(found, text)
        assert re.search(found, again)

    @pytest.mark.parametrize(
        ("text", "other"),
        [
            ("size of tensor (64) must match (16)", "size of tensor (64) must match (32)"),
            ("index 0: 64 and 16", "index 1: 64 and 16"),
            ("a.b", "axb"),
            ("in /home/joe/x.py failed", "in nothing failed"),
        ],
    )
    def test_and_nothing_else(self, text: str, other: str) -> None:
        assert re.search(pattern(text), text)
        assert not re.search(pattern(text), other)

    def test_it_reads_as_people_write_it(self) -> None:
        assert pattern("the size (64) - must match") == r"the size \(64\) - must match"

    def test_a_long_one_is_cut_between_words(self) -> None:
        found = pattern("word " * 100)
        assert len(found) <= LENGTH
        assert found.endswith("word")

    @given(st.text(max_size=300))
    def test_it_always_matches_what_it_was_made_of(self, text: str) -> None:
        assert re.search(pattern(text), text)
