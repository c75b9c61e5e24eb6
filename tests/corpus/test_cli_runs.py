import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from casebook_workbench.corpus import journal
from gpu_casebook import cli
from gpu_casebook.errors import UsageError
from tests.conftest import Checkout
from tests.corpus.report.example import TODAY, YESTERDAY


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which the corpus was run twice."""
    checkout.write()
    for each in (YESTERDAY, TODAY):
        (checkout.root / "local" / "runs" / each.id).mkdir(parents=True)
        with journal.Journal.create(checkout.root / "local", each.model_copy(update={"finished": []})) as record:
            record.append(each.finished)
    monkeypatch.chdir(checkout.root)
    return checkout.root


def casebook(*words: str) -> tuple[int, str]:
    """Exit status, and both streams."""
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def files(root: Path) -> set[str]:
    return {path.name for path in (root / "local" / "runs" / TODAY.id).iterdir()}


def test_writes_the_newest_run_again(here: Path) -> None:
    assert casebook("run-report") == (0, f"wrote local/runs/{TODAY.id}/README.md\n")
    assert {"README.md", "summary.json", "junit.xml", "rates.svg"} <= files(here)


def test_prints_and_writes_nothing(here: Path) -> None:
    before = files(here)
    for word in ("page", "summary", "comment"):
        status, said = casebook("run-report", TODAY.id, "--format", word)
        assert (status, said.count("**3 of 5 confirmed**")) == (0, 1)
    assert json.loads(casebook("run-report", "--format", "json")[1])["id"] == TODAY.id
    assert ET.fromstring(casebook("run-report", YESTERDAY.id, "--format", "junit")[1]).tag == "testsuites"
    assert files(here) == before


@pytest.mark.usefixtures("here")
def test_no_such_run() -> None:
    status, said = casebook("run-report", "../cases")
    assert status == UsageError.exit_status
    assert said.startswith("casebook: no run '../cases' in ")
    assert len(said.splitlines()) == 1


def entries(*words: str) -> list[str]:
    status, said = casebook("matrix", *words)
    assert status == 0, said
    assert len(said.splitlines()) == 1
    return [entry["name"] for entry in json.loads(said)["include"]]


@pytest.mark.usefixtures("here")
def test_matrix_of_the_manifests() -> None:
    assert entries() == ["tiny/interpreter", "tiny/current"]
    assert entries("--hosted") == ["tiny/interpreter"]
    assert entries("--runners", '{"gpu1": "my-scale-set"}') == ["tiny/current"]
    assert entries("--grade", "hardware", "--per", "machine") == ["tiny/current"]
    assert entries("t*", "--environment", "current") == ["tiny/current"]


@pytest.mark.usefixtures("here")
def test_what_no_runner_has_is_on_record_as_skipped(tmp_path: Path) -> None:
    """Which a night's run takes in as a part, so that its page and its changes have it."""
    part, whole = tmp_path / "part", tmp_path / "whole"
    runners = ["--runners", '{"gpu2": "a", "gpu1-sm120": "b"}']
    assert entries("--environment", "current", *runners, "--not-run", str(part)) == []
    status, said = casebook("run-merge", str(part), "--reports", str(whole))
    assert status == 0, said
    status, said = casebook("run-report", "--reports", str(whole), "--format", "json")
    (line,) = json.loads(said)["lines"]
    assert (line["standing"], line["reason"]) == (
        "skipped",
        "no runner is named that has 1 GPU of compute capability >=7.0,<10.0",
    )
    assert entries("--runners", '{"gpu1": "a"}', "--not-run", str(tmp_path / "none")) == ["tiny/current"]
    assert not (tmp_path / "none").exists()


def test_matrix_has_a_case_with_a_broken_manifest(here: Path) -> None:
    (here / "cases" / "tiny" / "case.yaml").write_text("id: tiny\n")
    assert entries() == ["tiny"]


def test_matrix_of_what_changed(here: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], cwd=here, check=True)
    assert entries("--changed-since", "HEAD") == []
    (here / "cases" / "tiny" / "README.md").write_text("Changed.\n")
    assert entries("--changed-since", "HEAD") == ["tiny/interpreter", "tiny/current"]


@pytest.mark.usefixtures("here")
def test_matrix_by_something_there_is_not() -> None:
    status, said = casebook("matrix", "--changed-since", "nothing")
    assert status == UsageError.exit_status
    assert said.startswith("casebook: --changed-since nothing: ")


def test_runs_of_several_machines_become_one_with_a_page(here: Path, tmp_path: Path) -> None:
    parts = here / "local"
    status, said = casebook("run-merge", str(parts), "--reports", str(tmp_path / "whole"), "--selection", "night")
    assert (status, said.count("README.md")) == (0, 1)
    assert "cases: night" in next((tmp_path / "whole" / "runs").glob("*/README.md")).read_text()
    assert casebook("run-merge", str(tmp_path / "nowhere"))[0] == UsageError.exit_status
