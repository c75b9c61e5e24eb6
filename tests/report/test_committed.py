"""What is in reports/: evidence that exists keeps its meaning, and its pages are the ones that it renders to."""

import re
import shutil
from pathlib import Path

import pytest

from casebook_workbench.upkeep.rebuild import render_all
from gpu_casebook.evidence import evidence_files, evidence_path, load
from gpu_casebook.report.readme import Readme, mechanism

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize("path", evidence_files(REPORTS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_evidence_loads_and_lies_where_it_belongs(path: Path) -> None:
    assert evidence_path(REPORTS, load(path)) == path


@pytest.mark.parametrize("readme", sorted(REPORTS.parent.glob("cases/*/README.md")), ids=lambda path: path.parent.name)
def test_each_readme_tells_the_mechanism_in_two_sentences_first(readme: Path) -> None:
    told = Readme.read(readme.parent).why.partition("\n\n")[0]
    assert mechanism(told) == " ".join(told.split())
    assert 100 < len(told) < 400


def test_each_link_of_a_page_leads_to_a_file() -> None:
    for page in REPORTS.glob("*.md"):
        for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", page.read_text().partition("## The fix")[0]):
            assert (REPORTS / link).is_file(), (page.name, link)


def test_the_pages_are_those_that_the_evidence_renders_to(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    for name in ("evidence", "bisect", "watch"):
        shutil.copytree(REPORTS / name, reports / name, ignore=shutil.ignore_patterns("*.md"))
    for readme in REPORTS.parent.glob("cases/*/README.md"):
        (tmp_path / "cases" / readme.parent.name).mkdir(parents=True)
        for name in ("README.md", "case.yaml"):
            shutil.copy(readme.with_name(name), tmp_path / "cases" / readme.parent.name)
    written = {path.relative_to(reports).as_posix(): path.read_text() for path in render_all(reports)}
    assert written == {name: (REPORTS / name).read_text() for name in written}
    assert set(written) == {path.relative_to(REPORTS).as_posix() for path in REPORTS.glob("[!.r]*/*.md")} | {
        path.name for path in REPORTS.glob("*.md")
    }
