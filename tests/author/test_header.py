"""The header of a script's inline metadata."""

import pytest

from casebook_workbench.author.header import script_header


class TestScriptHeader:
    def test_good(self) -> None:
        lines = ["#!/usr/bin/python", "# /// script", "# dependencies = [", '#   "a==1",', "#", "# ]"]
        text = "\n".join([*lines, '# requires-python = ">=3.11"', "# ///", "x", ""])
        assert script_header(text) == (["a==1"], ">=3.11", 2, ())

    def test_no_requires_python(self) -> None:
        assert script_header("# /// script\n# dependencies = []\n# ///\n") == ([], None, 1, ())

    def test_packages_without_dependencies(self) -> None:
        told = '# [[tool.uv.dependency-metadata]]\n# name = "{}"\n# requires-dist = {}\n'
        text = "# /// script\n# dependencies = []\n{}# ///\n"
        header = script_header(
            text.format(told.format("B_b", "[]") + told.format("a", "[]") + told.format("c", "['x']"))
        )
        assert header
        assert header.alone == ("a", "b-b")

    @pytest.mark.parametrize("text", ["", "print(1)\n", "# /// script\n# open = 1\n", "# /// other\n# a = 1\n# ///\n"])
    def test_none(self, text: str) -> None:
        assert script_header(text) is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("# /// script\n# dependencies = [\n# ///\n", "has a header that is not TOML"),
            ("# /// script\n# dependencies = 'a'\n# ///\n", "dependencies are not a list of strings"),
            ("# /// script\n# requires-python = 3.11\n# ///\n", "requires-python is not a string"),
            ("# /// script\n# tool.uv.dependency-metadata = 1\n# ///\n", "has no names and requires-dist"),
            ("# /// script\n# a = 1\n# ///\n\n# /// script\n# a = 1\n# ///\n", "has two headers"),
        ],
    )
    def test_broken(self, text: str, expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            script_header(text)
