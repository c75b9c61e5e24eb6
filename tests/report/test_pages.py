from pathlib import Path

import pytest

from runner.errors import CasebookError
from runner.evidence import evidence_path, load
from runner.report import case_page, index, publish, render_all
from tests.report.example import CASE, evidence, simulated

OTHER = CASE.model_copy(update={"id": "other-case"})


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*.[mj]*")
        if path.is_file()
    }


def test_publish_writes_evidence_page_and_index(tmp_path: Path) -> None:
    page = publish(tmp_path, evidence())
    assert page == tmp_path / "rwkv6-backward.md"
    assert load(evidence_path(tmp_path, evidence())) == evidence()
    assert page.read_text() == case_page([evidence()])
    assert (tmp_path / "README.md").read_text() == index([evidence()])
    assert set(files(tmp_path)) == {
        "README.md",
        "rwkv6-backward.md",
        "evidence/rwkv6-backward/upstream.docker.nvidia-h200.json",
    }


def test_publish_keeps_what_other_runs_left(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    publish(tmp_path, simulated())
    publish(tmp_path, evidence(case=OTHER))
    assert (tmp_path / "rwkv6-backward.md").read_text() == case_page([evidence(), simulated()])
    assert (tmp_path / "README.md").read_text() == index([evidence(), simulated(), evidence(case=OTHER)])


def test_a_later_run_of_the_same_replaces_the_earlier(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    publish(tmp_path, evidence(command="again"))
    assert (tmp_path / "rwkv6-backward.md").read_text() == case_page([evidence(command="again")])


def test_everything_is_rendered_again_to_the_same_bytes(tmp_path: Path) -> None:
    for run in (evidence(), simulated(), evidence(case=OTHER)):
        publish(tmp_path, run)
    before = files(tmp_path)
    for page in tmp_path.glob("*.md"):
        page.write_text("spoiled")
    written = render_all(tmp_path)
    assert [path.name for path in written] == ["other-case.md", "rwkv6-backward.md", "README.md"]
    assert files(tmp_path) == before


def test_no_evidence_is_an_empty_index(tmp_path: Path) -> None:
    assert render_all(tmp_path / "reports") == [tmp_path / "reports" / "README.md"]
    assert "Nothing yet" in (tmp_path / "reports" / "README.md").read_text()


def test_evidence_that_cannot_be_read_stops_before_anything_is_written(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    page = tmp_path / "rwkv6-backward.md"
    page.write_text("as it was")
    broken = tmp_path / "evidence" / "other-case" / "x.json"
    broken.parent.mkdir()
    broken.write_text("{")
    with pytest.raises(CasebookError, match=r"x\.json: can't be read"):
        render_all(tmp_path)
    assert page.read_text() == "as it was"


def test_new_evidence_is_safe_even_if_older_evidence_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "evidence" / "other-case" / "x.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    with pytest.raises(CasebookError, match="other-case"):
        publish(tmp_path, evidence())
    assert load(evidence_path(tmp_path, evidence())) == evidence()


def test_half_written_evidence_is_passed_over(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    (tmp_path / "evidence" / "rwkv6-backward" / ".x.json.partial").write_text("{")
    (tmp_path / "evidence" / "rwkv6-backward" / ".x.json").write_text("{")
    render_all(tmp_path)
