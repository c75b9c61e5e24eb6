"""The workflows of GitHub Actions: what they call exists, what they use is pinned, and who may run where."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gpu_casebook import cli
from gpu_casebook.corpus import journal
from gpu_casebook.corpus.matrix import matrix
from gpu_casebook.evidence import Verdict
from tests.corpus.report.example import MASK, RWKV, finished, run
from tests.corpus.report.example import job as one_job

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".github"
FILES = sorted([*HOME.glob("workflows/*.yml"), *HOME.glob("actions/*/action.yml")])
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in HOME.glob("workflows/*.yml")}
JOBS = [(name, id_, job) for name, each in sorted(WORKFLOWS.items()) for id_, job in each["jobs"].items()]
ON = True
"""What YAML 1.1 makes of the key `on`."""


def steps(path: Path) -> Iterator[dict[str, Any]]:
    data = yaml.safe_load(path.read_text())
    for job in data.get("jobs", {"": data.get("runs", {})}).values():
        yield from job.get("steps", [])


def scripts() -> Iterator[str]:
    for path in FILES:
        yield from (step["run"] for step in steps(path) if "run" in step)


def script(path: str, name: str) -> str:
    return str(next(step["run"] for step in steps(HOME / path) if step.get("name") == name))


def test_there_are_workflows() -> None:
    assert set(WORKFLOWS) == {"case", "corpus", "tests"}
    assert len(list(scripts())) >= 7


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name + "/" + path.name)
def test_every_action_is_pinned_by_commit_with_its_version(path: Path) -> None:
    uses = re.findall(r"^\s*(?:- )?uses: +(.*)$", path.read_text(), re.MULTILINE)
    assert uses
    for each in uses:
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+|\./\.github/actions/[\w-]+( +#.*)?", each)
    for local in re.findall(r"uses: \./(\S+)", path.read_text()):
        assert (ROOT / local / "action.yml").is_file()


def test_one_action_has_one_commit() -> None:
    text = "".join(path.read_text() for path in FILES)
    pins = set(re.findall(r"uses: +([\w-]+/[\w-]+)@([0-9a-f]{40}  # \S+)", text))
    assert len({name for name, _ in pins}) == len(pins)


@pytest.mark.parametrize(("workflow", "id_", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_ends_and_may_only_read(workflow: str, id_: str, job: dict[str, Any]) -> None:
    assert 1 <= job["timeout-minutes"] <= 180
    assert WORKFLOWS[workflow]["permissions"] == {"contents": "read"}
    assert set(job.get("permissions", {}).values()) <= {"read"}
    for step in job["steps"]:
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_no_secret_is_used_and_no_fork_reaches_a_machine_of_ones_own() -> None:
    for path in FILES:
        assert "secrets." not in path.read_text()
        assert "pull_request_target" not in path.read_text()
    for _, id_, job in JOBS:
        if "self-hosted" in job["runs-on"]:
            assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"], id_


@pytest.mark.parametrize(("workflow", "id_", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_where_a_job_runs_is_a_literal_or_a_variable_of_the_repository(
    workflow: str, id_: str, job: dict[str, Any]
) -> None:
    where = job["runs-on"]
    if where == "ubuntu-24.04":
        return
    assert "outputs" not in where
    left = re.sub(r"fromJSON\(vars\.CASEBOOK_RUNNER_GPU[12] \|\| '[^']*'\)|'ubuntu-24\.04'", "RUNNER", where)
    # what comes from the matrix or the caller is compared with a number, and is no label
    left = re.sub(r"(?:matrix|inputs)\.gpus (?:==|>) \d", "CHOICE", left)
    words = re.findall(r"[\w.]+", left)
    assert "RUNNER" in words
    assert set(words) <= {"RUNNER", "CHOICE"}, f"{workflow}: {id_}"


def test_a_matrix_names_no_runner() -> None:
    entry = json.loads(matrix([one_job("mask", gpus=1)]))["include"][0]
    assert set(entry) == {"name", "cases", "environment", "gpus"}


def test_no_job_waits_for_a_gpu_where_there_is_none() -> None:
    assert "vars.CASEBOOK_GPU == 'true'" in WORKFLOWS["corpus"]["jobs"]["gpu"]["if"]


def test_another_projects_requirement_is_built_in_a_container_of_the_images_base() -> None:
    base = tomllib.loads((ROOT / "images" / "bases.toml").read_text())["debian"]
    jobs = WORKFLOWS["case"]["jobs"]
    assert jobs["wheel"]["container"] == f"{base['image']}@{base['digest']}"
    assert jobs["wheel"]["runs-on"] == "ubuntu-24.04"
    built = [id_ for id_, job in jobs.items() for step in job["steps"] if "pip wheel" in step.get("run", "")]
    assert built == ["wheel"]


@pytest.mark.parametrize(
    ("path", "name"), [("actions/run-cases/action.yml", "Run the cases"), ("workflows/case.yml", "Run the case")]
)
def test_the_engine_is_named_so_that_no_other_takes_its_place(path: str, name: str) -> None:
    assert "--engine docker" in script(path, name)


def test_started_by_events_one_run_replaces_or_awaits_another() -> None:
    for name, workflow in WORKFLOWS.items():
        called = set(workflow[ON]) == {"workflow_call"}
        assert ("concurrency" in workflow) is not called, name
    assert set(WORKFLOWS["corpus"][ON]["pull_request"]["paths"]) == {"cases/**", "images/**"}


def test_every_session_and_verb_exists() -> None:
    text = "\n".join(scripts())
    sessions = {word for words in re.findall(r"nox -s((?: [a-z][a-z-]*)+)", text) for word in words.split()}
    assert sessions == {"lint", "check", "tests", "corpus"}
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sessions <= set(re.findall(r"^[*-] (\S+)", listed.stdout, re.MULTILINE))
    verbs = set(re.findall(r"casebook ([a-z-]+)", text))
    assert verbs == {"matrix", "run-merge", "run-report", "case"}
    assert verbs <= set(get_command(cli.app).commands)  # type: ignore[attr-defined]


def test_every_option_of_a_verb_exists() -> None:
    commands = get_command(cli.app).commands  # type: ignore[attr-defined]
    wanted = {
        "corpus": script("actions/run-cases/action.yml", "Run the cases"),
        "case": script("workflows/case.yml", "Run the case"),
        "matrix": script("workflows/corpus.yml", "Which cases, on which machines"),
    }
    for verb, text in wanted.items():
        known = {option for parameter in commands[verb].params for option in parameter.opts}
        named = set(re.findall(r"(?:^|[\s(])(--[a-z][a-z-]+)", text)) - {"--quiet"}
        assert named
        assert named <= known, verb


# The scripts themselves, run by bash with a Python that installs nothing


def bash(text: str, where: Path, casebook: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`casebook` is what that command runs; the verb and its arguments are "$@"."""
    tools = where / "tools"
    tools.mkdir()
    for name, body in {"python": "exit 0", "casebook": casebook, "nox": 'printf "%s\\n" "$@"'}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    (where / "script").write_text(text)
    given = {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(where / "output")}
    given |= {"GITHUB_STEP_SUMMARY": str(where / "summary"), **variables}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(where / "script")]
    return subprocess.run(command, cwd=where, env=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("cases", "base"), [("", ""), ("rwkv6-* ", ""), ("", "HEAD")])
def test_the_matrix_step_gives_two_matrices(tmp_path: Path, cases: str, base: str) -> None:
    here = f'cd {ROOT} && exec {sys.executable} -m gpu_casebook "$@"'
    text = script("workflows/corpus.yml", "Which cases, on which machines")
    done = bash(text, tmp_path, here, CASES=cases, BASE=base)
    assert done.returncode == 0, done.stderr
    lines = dict(line.partition("=")[::2] for line in (tmp_path / "output").read_text().splitlines())
    assert set(lines) == {"hosted", "gpu"}
    for name, line in lines.items():
        entries = json.loads(line)["include"]
        assert entries or base
        assert all((entry["gpus"] > 0) is (name == "gpu") for entry in entries)


def test_an_empty_matrix_is_what_the_condition_looks_for() -> None:
    for id_ in ("hosted", "gpu"):
        assert f"needs.matrix.outputs.{id_} != '{matrix([])}'" in WORKFLOWS["corpus"]["jobs"][id_]["if"]


@pytest.mark.parametrize(("environment", "more"), [("current", ["--environment", "current"]), ("", [])])
def test_cases_reach_the_session_one_by_one(tmp_path: Path, environment: str, more: list[str]) -> None:
    text = script("actions/run-cases/action.yml", "Run the cases")
    done = bash(text, tmp_path, "true", CASES="one two *", ENVIRONMENT=environment)
    expected = [
        "-s",
        "corpus",
        "--",
        "--engine",
        "docker",
        "--max-age",
        "0",
        "--reports",
        "part",
        *more,
        "--",
        "one",
        "two",
        "*",
    ]
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize("status", [0, 15, 5])
def test_a_case_ends_as_the_runner_does_which_is_told_the_verdict(tmp_path: Path, status: int) -> None:
    text = script("workflows/case.yml", "Run the case")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a b-1.0.whl").touch()
    (tmp_path / "reports-of-case").mkdir()
    (tmp_path / "reports-of-case" / "tiny.md").write_text("the page\n")
    summary = tmp_path / "summary.md"
    ended = f'printf "%s\n" "$@"; exit {status}'
    variables = {"CASE": "tiny", "ENVIRONMENT": "", "EXPECT": "not-reproduced", "GITHUB_STEP_SUMMARY": str(summary)}
    done = bash(text, tmp_path, ended, **variables)
    assert done.returncode == status, done.stderr
    assert "--with\nwheels/a b-1.0.whl\n--expect\nnot-reproduced\n--\ntiny\n" in done.stdout
    assert summary.read_text() == "the page\n"


def test_the_parts_become_one_run_with_its_reports(tmp_path: Path) -> None:
    for name in ("cases", "images"):
        (tmp_path / name).mkdir()
    for number, done in enumerate((finished(RWKV), finished(MASK, Verdict.NOT_REPRODUCED))):
        reports = tmp_path / "parts" / f"corpus-part-gpu-{number}"
        part = run([done], night=number, host=f"box-{number}")
        (reports / "runs" / part.id).mkdir(parents=True)
        with journal.Journal.create(reports, part.model_copy(update={"finished": []})) as record:
            record.append(part.finished)
    text = script("workflows/corpus.yml", "One run of all parts")
    done_ = bash(text, tmp_path, f'exec {sys.executable} -m gpu_casebook "$@"', SELECTION="all", PYTHONPATH=str(ROOT))
    assert done_.returncode == 0, done_.stderr
    assert "**1 of 2 confirmed**, 1 not-reproduced" in (tmp_path / "summary").read_text()
    assert "box-0 worker 1" in next((tmp_path / "reports" / "runs").glob("*/summary.json")).read_text()
    assert (tmp_path / "junit.xml").read_text().count("<testcase") == 2
    assert "### Casebook" in (tmp_path / "comment.md").read_text()
