"""What is in reports/: evidence that exists keeps its meaning, and its pages are the ones that it renders to."""

import shutil
from pathlib import Path

import pytest

from gpu_casebook.evidence import evidence_files, evidence_path, load
from gpu_casebook.report.rebuild import render_all

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.mark.parametrize("path", evidence_files(REPORTS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_evidence_loads_and_lies_where_it_belongs(path: Path) -> None:
    assert evidence_path(REPORTS, load(path)) == path


def test_the_pages_are_those_that_the_evidence_renders_to(tmp_path: Path) -> None:
    for name in ("evidence", "bisect", "watch"):
        shutil.copytree(REPORTS / name, tmp_path / name, ignore=shutil.ignore_patterns("*.md"))
    written = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in render_all(tmp_path)}
    assert written == {name: (REPORTS / name).read_text() for name in written}
    assert set(written) == {path.relative_to(REPORTS).as_posix() for path in REPORTS.glob("[!.r]*/*.md")} | {
        path.name for path in REPORTS.glob("*.md")
    }
