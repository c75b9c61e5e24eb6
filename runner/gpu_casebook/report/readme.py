"""A case's README.md, read in one way by all that show or check it: its sections by their headings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpu_casebook.files import read_text

MAX_BYTES = 2**20
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"(##?)[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


class Section(NamedTuple):
    """A section, without its heading. What stands above the first one has an empty heading."""

    heading: str
    text: str
    line: int  # of its heading


class Readme(NamedTuple):
    """Text and sections of a README; empty where it can't be read."""

    text: str
    sections: list[Section]

    @classmethod
    def of(cls, text: str) -> "Readme":
        return cls(text, list(sections(text)))

    @classmethod
    def read(cls, case: Path) -> "Readme":
        """Read the README of a case's directory."""
        try:
            return cls.of(read_text(case / "README.md", MAX_BYTES))
        except OSError:
            return cls("", [])

    def section(self, begins: str) -> str:
        """Return the text of the first section whose heading begins so; empty if there is none."""
        return next((each.text for each in self.sections if each.heading.startswith(begins)), "")

    @property
    def saw(self) -> str:
        return self.section("What users")

    @property
    def why(self) -> str:
        return self.section("Why")

    @property
    def yours(self) -> str:
        """How to tell whether a failure is this one."""
        return self.section("Is your failure")


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of fences, with their numbers from 1."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        else:
            yield number, line


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a README. The title heads none; what stands below it has an empty heading."""
    lines = text.splitlines()
    found = [(number, match) for number, line in prose_lines(text) if (match := _HEADING.match(line))]
    heads = [(0, ""), *((number, match[2] if match[1] == "##" else "") for number, match in found)]
    ends = [*(number - 1 for number, _ in heads[1:]), len(lines)]
    for (number, heading), end in zip(heads, ends, strict=True):
        yield Section(heading, "\n".join(lines[number:end]).strip(), number)


def mechanism(why: str) -> str:
    """Return the first two sentences of a README's section on the mechanism, on one line."""
    return " ".join(_SENTENCE.split(" ".join(why.partition("\n\n")[0].split()))[:2])
