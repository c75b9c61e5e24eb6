"""`casebook grade`, as it is typed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook_workbench.grade import graded as known
from gpu_casebook.cli import app
from gpu_casebook.engines import registry
from gpu_casebook.errors import ExitStatus
from tests.grade.test_grading import CASE, FIXED, SUBJECT, Here, graded
from tests.grade_table import graded_cases

MANY = 25


def typed(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["grade", *words])
    return ended.exit_code, ended.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy case in the place of a real one, on an engine that runs it with this Python."""
    (tmp_path / "trials").mkdir()
    monkeypatch.setattr(registry, "choose", lambda *_: Here(tmp_path / "trials"))
    monkeypatch.setattr(known, "load", lambda *_: graded())
    return tmp_path


def test_without_a_case_those_that_can_be_graded_are_listed() -> None:
    status, said = typed()
    assert (status, said.splitlines()) == (0, graded_cases())
    assert len(said.splitlines()) >= MANY


def test_without_a_candidate_the_task_is_told() -> None:
    status, said = typed(CASE)
    assert status == 0
    assert "`tokenizers==0.23.2`" in said
    assert said.splitlines()[-1].endswith(f"cases/{CASE}/grade/subject.py")


def test_a_case_says_whether_it_can_be_graded() -> None:
    told = [CliRunner().invoke(app, ["show", case]).output for case in (CASE, "vllm-unmap-in-flight")]
    assert [f"casebook grade {CASE} candidate.py" in told[0], "casebook grade" in told[1]] == [True, False]


@pytest.mark.parametrize(
    ("text", "status", "last"),
    [
        (FIXED, ExitStatus.CONFIRMED, "accepted: equal to the reference in 3 of 3 rounds; "),
        (SUBJECT, ExitStatus.FIX_FAILS, "refused: round 1: y: 18 where it should be 36"),
    ],
)
def test_a_candidate_is_accepted_or_refused(here: Path, text: str, status: int, last: str) -> None:
    (here / "candidate.py").write_text(text)
    found, said = typed(CASE, str(here / "candidate.py"), "--seed", "11")
    assert found == status, said
    assert said.splitlines()[-1].startswith(last)
    assert "the candidate can read this machine's files" in said


def test_an_engine_without_images_writes_no_tasks(here: Path) -> None:
    status, said = typed(CASE, "--harbor", str(here / "tasks"), "--engine", "venv")
    assert (status, said.splitlines()[-1]) == (
        ExitStatus.USAGE,
        "casebook: a task needs an image, and the here engine has none; use docker",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing-like-it"], "no case 'nothing-like-it'"),
        (
            ["vllm-unmap-in-flight"],
            "casebook: case vllm-unmap-in-flight can't be graded: there is no cases/",
        ),
        ([CASE, "nowhere.py"], "casebook: nowhere.py: is missing"),
        ([CASE, "nowhere.py", "--harbor", "tasks"], "casebook: --harbor writes tasks; leave the candidate out"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str) -> None:
    status, said = typed(*words)
    assert status == ExitStatus.USAGE
    assert len(said.splitlines()) == 1
    assert says in said
