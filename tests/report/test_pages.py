import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from casebook_workbench.upkeep.rebuild import remove_overtaken, render_all
from failure_signature.kinds import Variant
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence, evidence_path, load
from gpu_casebook.report import pages
from gpu_casebook.report.case_page import case_page
from gpu_casebook.report.pages import index, publish, render
from tests.report.example import CASE, ENGINE, ENVIRONMENT, evidence, simulated

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


def test_a_page_says_where_bounds_come_from_or_that_they_are_a_guess(tmp_path: Path) -> None:
    case = tmp_path / "cases" / "rwkv6-backward"
    case.mkdir(parents=True)
    bounds = "environments:\n  a:\n    compute_capability: '>=8.0'\n  b:\n    compute_capability: '>=7.0'\n"
    (case / "case.yaml").write_text(f"{bounds}    capability_from: its README\n")
    page = publish(tmp_path / "reports", evidence()).read_text()
    assert "\n- Compute capability `>=8.0`: a guess, which nobody has measured\n" in page
    assert "\n- Compute capability `>=7.0`: its README\n" in page


def test_publish_loads_nothing_of_bisections() -> None:
    check = "import sys, gpu_casebook.report; sys.exit('gpu_casebook.report.watched' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


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


def test_a_run_with_fewer_trials_than_the_case_asks_for_replaces_none_that_has_more(tmp_path: Path) -> None:
    said: list[str] = []
    whole = evidence()
    short = whole.model_copy(update={"short": True, "trials": whole.trials[2:4]})
    publish(tmp_path, short, said.append)
    assert load(evidence_path(tmp_path, short)) == short
    publish(tmp_path, whole, said.append)
    assert said == []
    publish(tmp_path, short, said.append)
    assert load(evidence_path(tmp_path, whole)) == whole
    name = "upstream.docker.nvidia-h200.json"
    assert said == [f"not kept: fewer trials than the case asks for; {name} has 6, and stays"]
    evidence_path(tmp_path, whole).write_text("{")
    publish(tmp_path, short, said.append)
    assert load(evidence_path(tmp_path, short)) == short


def test_a_pattern_that_is_searched_for_ever_ends_in_a_page(tmp_path: Path) -> None:
    whole, slow = evidence(), "^(?:a|aa)+$"
    signature = {variant: [f"message: {slow}"] for variant in Variant}
    long = [each.model_copy(update={"stdout": "a" * 200 + "b"}) for each in whole.trials] * 50
    begun = time.process_time()
    publish(
        tmp_path, whole.model_copy(update={"trials": long, "case": CASE.model_copy(update={"signature": signature})})
    )
    assert time.process_time() - begun < 20


def test_everything_is_rendered_again_to_the_same_bytes(tmp_path: Path) -> None:
    for run in (evidence(), simulated(), evidence(case=OTHER)):
        publish(tmp_path, run)
    before = files(tmp_path)
    for page in tmp_path.glob("*.md"):
        page.write_text("spoiled")
    written = render_all(tmp_path)
    assert [path.name for path in written] == ["other-case.md", "rwkv6-backward.md", "README.md"]
    assert files(tmp_path) == before


def test_drifted_evidence_goes_where_later_and_exact_evidence_of_the_same_is_there(tmp_path: Path) -> None:
    drifted = ENVIRONMENT.model_copy(update={"drift": ["triton 2.2.1, not 2.2.0"]})
    late = datetime(2026, 12, 1, tzinfo=UTC)
    overtaken = evidence(environment=drifted)
    others = [
        simulated(),
        evidence(environment=drifted, case=OTHER),
        evidence(environment=drifted, engine=ENGINE.model_copy(update={"name": "venv"}), started=late),
    ]
    for run in (overtaken, *others):
        publish(tmp_path, run)
    assert remove_overtaken(tmp_path) == []
    unread = evidence_path(tmp_path, evidence(case=OTHER))
    unread.write_text("{")
    publish(tmp_path, evidence(started=datetime(2026, 11, 30, tzinfo=UTC), verdict=Verdict.NOT_REPRODUCED))
    assert remove_overtaken(tmp_path) == []
    publish(tmp_path, evidence(started=datetime(2026, 11, 30, tzinfo=UTC)))
    assert remove_overtaken(tmp_path) == [evidence_path(tmp_path, overtaken)]
    assert remove_overtaken(tmp_path) == []
    assert all(load(evidence_path(tmp_path, run)) == run for run in others)


def test_no_evidence_is_an_empty_index(tmp_path: Path) -> None:
    assert render_all(tmp_path / "reports") == [tmp_path / "reports" / "README.md"]
    assert "Nothing yet" in (tmp_path / "reports" / "README.md").read_text()


def test_files_that_can_not_be_read_are_named_and_left_out(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    (tmp_path / "rwkv6-backward.md").write_text("spoiled")
    for place in ("evidence/other-case", "watch", "bisect"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.y.json").write_text("{")
        (tmp_path / place / "directory.z.json").mkdir()
        os.mkfifo(tmp_path / place / "fifo.z.json")
    unread: list[str] = []
    assert [path.name for path in render_all(tmp_path, unread.append)] == ["rwkv6-backward.md", "README.md"]
    assert (tmp_path / "rwkv6-backward.md").read_text() != "spoiled"
    assert len(unread) == 9
    assert all("\n" not in line and "can't be read as" in line for line in unread)


def test_new_evidence_has_its_page_even_if_older_evidence_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "evidence" / "other-case" / "x.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    assert publish(tmp_path, evidence()).is_file()
    assert load(evidence_path(tmp_path, evidence())) == evidence()
    assert "other-case/x.json: can't be read" in capsys.readouterr().err


def test_the_index_is_made_without_holding_all_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Evidence] = []

    def kept(runs: Sequence[Evidence], *more: Any) -> str:
        seen.extend(runs)
        return index(runs, *more)

    for run in (evidence(), simulated(), evidence(case=OTHER)):
        publish(tmp_path, run)
    before = files(tmp_path)
    monkeypatch.setattr(pages, "index", kept)
    render_all(tmp_path)
    assert [run.trials for run in seen] == [[], [], []]
    assert files(tmp_path) == before


def test_pages_are_written_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the index of one run would be that of before the other."""
    publish(tmp_path, evidence())
    refused: list[Path] = []

    def while_rendering(path: Path) -> Evidence:
        with pytest.raises(Timeout):
            FileLock(tmp_path / "runs" / ".pages.lock").acquire(timeout=0)
        refused.append(path)
        return load(path)

    monkeypatch.setattr(Evidence, "read", while_rendering)
    render_all(tmp_path)
    assert refused


def test_only_the_pages_that_are_asked_for_and_the_index_are_rendered(tmp_path: Path) -> None:
    for run in (evidence(), evidence(case=OTHER)):
        publish(tmp_path, run)
    for page in tmp_path.glob("*.md"):
        page.write_text("as it was")
    assert [path.name for path in render(tmp_path, {"other-case"})] == ["other-case.md", "README.md"]
    assert (tmp_path / "rwkv6-backward.md").read_text() == "as it was"
    assert "rwkv6-backward" in (tmp_path / "README.md").read_text()


def test_half_written_evidence_is_passed_over(tmp_path: Path) -> None:
    publish(tmp_path, evidence())
    (tmp_path / "evidence" / "rwkv6-backward" / ".x.json.partial").write_text("{")
    (tmp_path / "evidence" / "rwkv6-backward" / ".x.json").write_text("{")
    render_all(tmp_path)


def test_the_template_engine_is_imported_when_something_is_rendered_and_not_before() -> None:
    code = "import sys, gpu_casebook.report.pages; sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
