"""Tasks in Harbor's format: what is in which container, and what grades there."""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from casebook_workbench.grade.harbor import write_task
from gpu_casebook.errors import UsageError
from tests.grade.test_grading import CASE, FIXED, SUBJECT, graded

PYTHON = "/usr/bin/python3"
IMAGE = "casebook/cpu:0123"


def written(tmp_path: Path, **given: object) -> Path:
    return write_task(graded(**given), tmp_path / "tasks", image=IMAGE, python=PYTHON)


def test_the_agent_gets_the_subject_and_neither_check_nor_fix(tmp_path: Path) -> None:
    place = written(tmp_path)
    assert place == tmp_path / "tasks" / CASE
    assert sorted(path.name for path in (place / "environment").iterdir()) == [
        "Dockerfile",
        "docker-compose.yaml",
        "subject.py",
    ]
    assert (place / "environment" / "Dockerfile").read_text().startswith(f"FROM {IMAGE}\n")
    assert (place / "environment" / "subject.py").read_text() == SUBJECT
    assert "network_mode: none" in (place / "environment" / "docker-compose.yaml").read_text()
    assert "check.py" not in (place / "instruction.md").read_text()


def test_the_verifier_is_another_container_that_gets_one_file_of_the_agents(tmp_path: Path) -> None:
    task = tomllib.loads((written(tmp_path) / "task.toml").read_text())
    assert task["schema_version"] == "1.4"
    assert task["artifacts"] == ["/task/subject.py"]
    assert task["verifier"]["environment_mode"] == "separate"
    assert task["task"]["name"] == f"casebook/{CASE}"
    assert task["metadata"]["requirements"] == ["tokenizers==0.23.2"]


def test_a_task_is_written_again_but_nothing_else_is_overwritten(tmp_path: Path) -> None:
    assert written(tmp_path) == written(tmp_path)
    (tmp_path / "other" / CASE).mkdir(parents=True)
    with pytest.raises(UsageError, match="is there, and no task"):
        write_task(graded(), tmp_path / "other", image=IMAGE, python=PYTHON)


root = pytest.mark.skipif(
    os.getuid() != 0 or not Path(PYTHON).exists(), reason="takes root, and a Python that another user may read"
)


def verified(tmp_path: Path, candidate: str | None) -> tuple[int, str]:
    for above in (tmp_path, *(each for each in tmp_path.parents[:3] if "pytest" in str(each))):
        above.chmod(0o755)
    tests, given, out = tmp_path / "tests", tmp_path / "subject.py", tmp_path / "reward.json"
    shutil.copytree(written(tmp_path) / "tests", tests)
    if candidate is not None:
        given.write_text(candidate)
    command = [PYTHON, str(tests / "verify.py"), str(given), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(out.read_text())["reward"], done.stdout


@root
@pytest.mark.parametrize(
    ("candidate", "reward", "says"),
    [
        (FIXED, 1, "accepted"),
        (SUBJECT, 0, "refused: round 1: y: "),
        (SUBJECT.replace("seed %", "1 + seed %"), 0, "refused: line 6: inputs is changed or moved"),
        (None, 0, "refused: there is no file"),
    ],
)
def test_what_grades_there_gives_the_same_answer(tmp_path: Path, candidate: str | None, reward: int, says: str) -> None:
    found, said = verified(tmp_path, candidate)
    assert (found, said[: len(says)]) == (reward, says)


@root
def test_the_candidate_may_not_read_what_grades_it(tmp_path: Path) -> None:
    check = tmp_path / "tests" / "check.py"
    reads = SUBJECT.replace('    return {"y"', f'    exec(open({str(check)!r}).read(), globals())\n    return {{"y"')
    reward, said = verified(tmp_path, reads)
    assert reward == 0
    assert "PermissionError" in said
