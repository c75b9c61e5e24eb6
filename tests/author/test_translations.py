import re
from pathlib import Path

import pytest

from casebook_workbench.author.check import check_all
from casebook_workbench.author.translations import digest, of_case, of_none
from gpu_casebook.errors import Severity
from tests.conftest import Checkout

ROOT = Path(__file__).parents[2]
README = """# Sums are off

## What users saw
The sum of a long
row is off.

## Why
It rounds.

## Is your failure this one?
- It is bfloat16.
"""


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "cases" / "sums" / "README.md"
    path.parent.mkdir(parents=True)
    path.write_text(README)
    page = tmp_path / "docs" / "zh" / "sums.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"<!-- en {digest(README)} -->\n# 求和不准\n")
    return path


@pytest.mark.parametrize(
    "change", [("It rounds", "It truncates"), ("a long\nrow", "a long row"), ("## Why\n", "## Why\n\n")]
)
def test_what_is_not_translated_may_change(change: tuple[str, str]) -> None:
    assert digest(README.replace(*change)) == digest(README)


@pytest.mark.parametrize("word", ["off\n\n## What", "long", "bfloat16"])
def test_title_symptom_and_how_to_tell_may_not(readme: Path, tmp_path: Path, word: str) -> None:
    assert list(of_case(readme, "sums", tmp_path)) == []
    changed = README.replace(word, f"short {word}", 1)
    readme.write_text(changed)
    (problem,) = of_case(readme, "sums", tmp_path)
    assert (problem.path, problem.line, problem.severity) == ("docs/zh/sums.md", 1, Severity.WARNING)
    assert "translates an earlier cases/sums/README.md" in problem.what
    assert f"<!-- en {digest(changed)} -->" in problem.what


def test_a_page_without_its_mark_is_told(readme: Path, tmp_path: Path) -> None:
    (tmp_path / "docs" / "zh" / "sums.md").write_text("# 求和不准\n")
    assert len(list(of_case(readme, "sums", tmp_path))) == 1


def test_a_case_needs_no_page(readme: Path, tmp_path: Path) -> None:
    assert list(of_case(readme, "others", tmp_path)) == []


@pytest.mark.usefixtures("readme")
def test_a_page_of_no_case_is_told(tmp_path: Path) -> None:
    assert list(of_none(tmp_path)) == []
    (tmp_path / "docs" / "zh" / "gone.md").write_text("")
    (tmp_path / "docs" / "zh" / "README.md").write_text("")
    assert [problem.path for problem in of_none(tmp_path)] == ["docs/zh/gone.md"]


def test_check_says_so_and_passes(checkout: Checkout) -> None:
    checkout.write()
    page = checkout.root / "docs" / "zh" / "tiny.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- en 000000000000 -->\n")
    (checkout.root / "docs" / "zh" / "gone.md").write_text("")
    found = [each for each in check_all(checkout.root) if each.path.startswith("docs/")]
    assert [(each.path, each.severity) for each in found] == [
        ("docs/zh/gone.md", Severity.WARNING),
        ("docs/zh/tiny.md", Severity.WARNING),
    ]


def test_every_page_is_in_the_list_and_says_what_it_translates() -> None:
    listed = (ROOT / "docs" / "zh" / "README.md").read_text()
    for page in (ROOT / "docs" / "zh").glob("[!R]*.md"):
        first, heading, *_ = page.read_text().splitlines()
        assert re.fullmatch(r"<!-- en [0-9a-f]{12} -->", first), page
        assert f"]({page.name}) | {heading.removeprefix('# ')} |" in listed
