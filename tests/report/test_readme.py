"""Everything that shows or checks a README reads it the same way."""

from pathlib import Path

from gpu_casebook.report.readme import Readme, Section, mechanism

TEXT = """\
# A title

In short.

## What users saw ##
It hangs.

```console
## no heading
# no title
```

### A part of it
More.

## Why
One sum. Two sums. Three sums.

A second paragraph.
"""


def test_sections_are_headings_of_the_second_level_outside_of_code() -> None:
    found = Readme.of(TEXT).sections
    assert [each.heading for each in found] == ["", "", "What users saw", "Why"]
    assert found[1] == Section("", "In short.", 1)
    assert found[2].line == 5
    assert found[2].text.startswith("It hangs.")
    assert found[2].text.endswith("```\n\n### A part of it\nMore.")


def test_a_longer_fence_is_closed_by_none_that_is_shorter() -> None:
    text = "## A\n````\n```\n## no heading\n````\n## B\n"
    assert [each.heading for each in Readme.of(text).sections] == ["", "A", "B"]


def test_the_parts_that_a_case_tells() -> None:
    readme = Readme.of(TEXT)
    assert readme.saw.startswith("It hangs.")
    assert mechanism(readme.why) == "One sum. Two sums."
    assert readme.yours == ""


def test_what_can_not_be_read_is_empty(tmp_path: Path) -> None:
    assert Readme.read(tmp_path) == ("", [])
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    assert Readme.read(tmp_path) == ("", [])
