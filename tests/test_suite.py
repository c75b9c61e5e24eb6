"""How the suite is run: what needs the machine alone, and that a busy machine fails nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import settings

ROOT = Path(__file__).parents[1]
PATHS = (ROOT, ROOT / "runner")
SETTINGS = """\
[pytest]
addopts = --strict-markers
markers =
    alone(reason): needs the machine
    gpu: needs a GPU
"""
TESTS = """\
import pytest

def test_beside(): pass

@pytest.mark.alone("counts processes")
def test_alone(): pass

@pytest.mark.gpu
def test_gpu(): pass

def test_fails(): assert 0
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest in a directory of its own; exit status, and what it said."""
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.alone"]\n')
    (tmp_path / "test_it.py").write_text(TESTS)

    def run(*options: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-p", "xdist", "-rA", *options]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        variables |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(map(str, PATHS))}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def ran(said: str) -> set[str]:
    return set(re.findall(r"(?m)^(?:PASSED|FAILED) test_it\.py::test_(\w+)", said))


def test_the_two_parts_are_the_whole_suite(run: Run) -> None:
    beside, alone = run("--alone", "no", "-n", "2", "--dist", "worksteal"), run("--alone", "only", "-n", "2", "-n0")
    assert (beside[0], ran(beside[1])) == (1, {"beside", "fails"}), beside[1]
    assert (alone[0], ran(alone[1])) == (0, {"alone", "gpu"}), alone[1]
    assert ran(run()[1]) == {"beside", "fails", "alone", "gpu"}


def test_what_failed_in_either_part_runs_again(run: Run) -> None:
    run("--alone", "no", "-n", "2", "--dist", "worksteal")
    run("--alone", "only", "-n0")
    again = ["--last-failed", "--last-failed-no-failures", "none"]
    assert ran(run("--alone", "no", "-n", "2", "--dist", "worksteal", "-n0", *again)[1]) == {"fails"}
    assert run("--alone", "only", *again, "-n0")[0] == pytest.ExitCode.NO_TESTS_COLLECTED


def test_without_a_cache_they_run_too(run: Run) -> None:
    assert run("--alone", "only", "-p", "no:cacheprovider")[0] == 0


def test_they_are_listed_with_their_seconds_and_their_reasons(run: Run) -> None:
    status, said = run("--alone", "list")
    assert (status, "| ? | test_it.py::test_alone | counts processes |" in said) == (0, True), said
    run("--alone", "only")
    said = run("--alone", "list")[1]
    assert re.search(r"(?m)^\| \d+\.\d \| test_it.py::test_alone \| counts processes \|$", said), said
    assert re.search(r"(?m)^\| \d+\.\d \| test_it.py::test_gpu \| uses a GPU", said), said
    assert "beside" not in said


def test_each_says_why(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace('("counts processes")', ""))
    status, said = run()
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "test_it.py::test_alone: alone(reason) says what it needs the machine for" in said


def test_no_example_fails_by_the_clock() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None


def test_the_hooks_before_a_commit_have_the_versions_of_the_lock() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    pins = {pin for hook in local["hooks"] for pin in hook["additional_dependencies"]}
    lock = (ROOT / "runner" / "requirements.txt").read_text()
    locked = set(re.findall(r"(?m)^[\w.-]+==\S+", lock))
    assert {pin.partition("==")[0] for pin in pins} == {"nox", "ruff", "virtualenv"}
    assert pins <= locked
