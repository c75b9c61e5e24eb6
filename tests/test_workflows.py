"""The workflows of GitHub Actions: what they call exists, what they use is pinned, and who may run where."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from typer.main import get_command

from casebook_workbench.corpus import journal
from casebook_workbench.corpus.matrix import matrix
from failure_signature.trials import Verdict
from gpu_casebook import cli
from tests.conftest import Checkout
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
    assert set(WORKFLOWS) == {"case", "corpus", "newest", "release", "tests", "watch"}
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


MAY_WRITE = {
    ("corpus", "pages"): {"pages", "id-token"},
    ("corpus", "changes"): {"issues"},
    ("watch", "propose"): {"contents", "pull-requests"},
    ("release", "publish"): {"id-token"},
    ("release", "draft"): {"contents"},
}


@pytest.mark.parametrize(("workflow", "id_", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_job_ends_and_only_what_runs_no_case_may_write(workflow: str, id_: str, job: dict[str, Any]) -> None:
    assert 1 <= job["timeout-minutes"] <= 180
    assert WORKFLOWS[workflow]["permissions"] == {"contents": "read"}
    writes = {name for name, may in job.get("permissions", {}).items() if may == "write"}
    assert writes == MAY_WRITE.get((workflow, id_), set())
    if writes:
        started_by_a_pull_request = "pull_request" in WORKFLOWS[workflow][ON]
        assert not started_by_a_pull_request or job["if"].startswith("github.event_name == 'schedule' && ")
        text = yaml.safe_dump(job["steps"])
        assert not re.search(r"\./\.github/actions|\b(?:pip|nox|casebook|python)\b", text)
    for step in job["steps"]:
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_no_secret_is_used_and_no_fork_reaches_a_machine_of_ones_own() -> None:
    for path in FILES:
        assert "secrets." not in path.read_text()
        assert "pull_request_target" not in path.read_text()
    for _, id_, job in JOBS:
        if "vars." in job["runs-on"]:
            assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"], id_


@pytest.mark.parametrize(("workflow", "id_", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_where_a_job_runs_is_a_literal_or_a_variable_of_the_repository(
    workflow: str, id_: str, job: dict[str, Any]
) -> None:
    where = job["runs-on"]
    if where == "ubuntu-24.04":
        return
    assert "outputs" not in where
    # what comes from the matrix or the caller only chooses in the variable's object, and is no label
    variable = r"fromJSON\(vars\.CASEBOOK_RUNNERS(?: \|\| '\{\}')?\)\[(?:matrix|inputs)\.runner\]"
    left, count = re.subn(variable, "RUNNER", where)
    assert count == 1
    left = left.replace("inputs.runner != 'hosted' &&", "").replace("|| 'ubuntu-24.04'", "")
    assert left.split() == ["${{", "RUNNER", "}}"], f"{workflow}: {id_}"


def test_a_matrix_names_no_runner() -> None:
    entry = json.loads(matrix([one_job("mask", gpus=1)]))["include"][0]
    assert set(entry) == {"name", "cases", "environments", "runner"}
    assert entry["runner"] == "gpu1"


def test_no_job_waits_for_a_gpu_where_there_is_none() -> None:
    """What no runner is named for is in no matrix: see below. A case that is called for waits neither."""
    assert "|| 'ubuntu-24.04' }}" in WORKFLOWS["case"]["jobs"]["case"]["runs-on"]
    assert "self-hosted" not in "".join(job["runs-on"] for _, _, job in JOBS)


def test_no_two_artifacts_of_a_run_have_one_name() -> None:
    for workflow in WORKFLOWS.values():
        named = [
            (step["with"]["name"], "strategy" in job)
            for job in workflow["jobs"].values()
            for step in job["steps"]
            if str(step.get("uses", "")).startswith("actions/upload-artifact@")
            or step.get("uses") == "./.github/actions/run-cases"
            if step["with"].setdefault("name", step["with"].get("artifact"))
        ]
        assert len({name for name, _ in named}) == len(named)
        assert all("strategy.job-index" in name for name, many in named if many)
    assert all(
        "inputs.artifact" in name
        for name in re.findall(r"name: (casebook-.*)", (HOME / "workflows/case.yml").read_text())
    )


def test_another_projects_requirement_is_built_on_a_hosted_runner_alone() -> None:
    jobs = WORKFLOWS["case"]["jobs"]
    assert jobs["wheel"]["runs-on"] == "ubuntu-24.04"
    built = [id_ for id_, job in jobs.items() for step in job["steps"] if "REQUIREMENT" in step.get("env", {})]
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
    assert set(WORKFLOWS["corpus"][ON]["pull_request"]["paths"]) == {"cases/**", "images/**", "runner/**"}


def test_every_session_and_verb_exists() -> None:
    text = "\n".join(scripts())
    sessions = {word for words in re.findall(r"nox -s((?: [a-z][a-z-]*)+)", text) for word in words.split()}
    assert sessions == {"lint", "check", "tests", "tests-newest"}
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sessions <= set(re.findall(r"^[*-] (\S+)", listed.stdout, re.MULTILINE))
    verbs = set(re.findall(r"\bcasebook ([a-z][a-z-]*)", text))
    assert verbs == {"matrix", "run-merge", "run-report", "case", "corpus", "images", "list", "site", "watch"}
    assert verbs <= set(get_command(cli.app).commands)  # type: ignore[attr-defined]


def test_every_option_of_a_verb_exists() -> None:
    group: Any = get_command(cli.app)
    wanted = {
        "corpus": script("actions/run-cases/action.yml", "Run the cases"),
        "case": script("workflows/case.yml", "Run the case"),
        "matrix": script("workflows/corpus.yml", "Which cases, on which machines").partition("[ ! -d")[0],
        "watch": script("workflows/watch.yml", "Try the newest releases"),
    }
    for verb, text in wanted.items():
        known = {option for parameter in group.get_command(None, verb).params for option in parameter.opts}
        named = set(re.findall(r"(?:^|[\s(])(--[a-z][a-z-]+)", text)) - {"--quiet"}
        assert named
        assert named <= known, verb


# The scripts themselves, run by bash with a Python that installs nothing


def bash(
    text: str, where: Path, casebook: str, programs: Mapping[str, str] = MappingProxyType({}), /, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`casebook` is what that command runs; the verb and its arguments are "$@"."""
    tools = where / "tools"
    tools.mkdir()
    for name, body in {"casebook": casebook, **programs}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    (where / "script").write_text(text)
    given = {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(where / "output")}
    given |= {"GITHUB_STEP_SUMMARY": str(where / "summary"), **variables}
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(where / "script")]
    return subprocess.run(command, cwd=where, env=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("machines", [[], ["gpu1"], ["gpu2"], ["gpu1", "gpu2"], ["gpu1-sm75"]])
@pytest.mark.parametrize(("cases", "base"), [("", ""), ("rwkv* ", ""), ("", "HEAD")])
def test_the_matrix_step_gives_two_matrices(tmp_path: Path, cases: str, base: str, machines: list[str]) -> None:
    here = f'cd {ROOT} && exec {sys.executable} -m gpu_casebook "${{@/#not-run/{tmp_path}/not-run}}"'
    text = script("workflows/corpus.yml", "Which cases, on which machines")
    runners = json.dumps(dict.fromkeys(machines, "a-runner")) if machines else ""
    done = bash(text, tmp_path, here, CASES=cases, BASE=base, RUNNERS=runners, PYTHONPATH=str(ROOT / "runner"))
    assert done.returncode == 0, done.stderr
    lines = dict(line.partition("=")[::2] for line in (tmp_path / "output").read_text().splitlines())
    hosted, gpu = (json.loads(lines.pop(name))["include"] for name in ("hosted", "gpu"))
    assert not lines
    assert all(entry["runner"] == "hosted" for entry in hosted)
    if not base:
        assert hosted
        assert [entry["runner"] for entry in gpu] == machines
        told = (tmp_path / "summary").read_text() if machines != ["gpu1", "gpu2"] else ""
        assert ("no runner is named that has 1 GPU" in told) is ("gpu1" not in machines)
        assert ("no runner is named that has 2 GPUs" in told) is ("gpu2" not in machines)


def test_an_empty_matrix_is_what_the_condition_looks_for() -> None:
    for id_ in ("hosted", "gpu"):
        assert f"needs.matrix.outputs.{id_} != '{matrix([])}'" in WORKFLOWS["corpus"]["jobs"][id_]["if"]


@pytest.mark.parametrize("status", [0, 14, 20])
@pytest.mark.parametrize(
    ("environments", "more"), [("current new", ["--environment", "current", "--environment", "new"]), ("", [])]
)
def test_cases_reach_the_corpus_one_by_one(tmp_path: Path, environments: str, more: list[str], status: int) -> None:
    text = script("actions/run-cases/action.yml", "Run the cases")
    ended = f'printf "%s\\n" "$@"; exit {status}'
    done = bash(text, tmp_path, ended, CASES="one two *", ENVIRONMENTS=environments)
    options = ["--engine", "docker", "--max-age", "0", "--reports", "part", *more]
    assert done.stdout.splitlines() == ["corpus", *options, "--", "one", "two", "*"], done.stderr
    assert done.returncode == (20 if status == 20 else 0)


@pytest.mark.parametrize(("status", "ends", "changed"), [(0, 0, ""), (30, 0, "changed=true\n"), (5, 5, "")])
def test_a_week_without_a_change_proposes_nothing(tmp_path: Path, status: int, ends: int, changed: str) -> None:
    (tmp_path / "output").touch()
    done = bash(script("workflows/watch.yml", "Try the newest releases"), tmp_path, f"exit {status}")
    assert (done.returncode, (tmp_path / "output").read_text()) == (ends, changed)


CALLS = 'printf "%s " gh "$@" >> calls; echo >> calls; [ "$2" != list ] || printf "%s" "$OPEN"'


@pytest.mark.parametrize(
    ("opened", "call"), [("", "gh issue create --title T --body-file comment.md"), ("7", "gh issue comment 7")]
)
def test_what_nights_changed_is_in_one_issue(tmp_path: Path, opened: str, call: str) -> None:
    text = script("workflows/corpus.yml", "What changed, in an issue")
    done = bash(text, tmp_path, "exit 1", {"gh": CALLS}, TITLE="T", OPEN=opened)
    assert done.returncode == 0, done.stderr
    listed, called = (tmp_path / "calls").read_text().splitlines()
    assert listed.startswith("gh issue list")
    assert called.startswith(call)


@pytest.mark.parametrize("opened", ["", "7"])
def test_what_was_watched_is_pushed_and_proposed_once(tmp_path: Path, opened: str) -> None:
    origin, here = tmp_path / "origin.git", tmp_path / "here"
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "--quiet", "--bare", origin], check=True)
    subprocess.run(["git", "clone", "--quiet", origin, here], check=True, capture_output=True)
    (here / "reports" / "watch").mkdir(parents=True)
    (here / "reports" / "README.md").write_text("before\n")
    subprocess.run(["git", "-C", here, "add", "."], check=True)
    subprocess.run(["git", "-C", here, *identity, "commit", "--quiet", "--message", "a"], check=True)
    (here / "reports" / "README.md").write_text("after\n")
    (here / "reports" / "watch" / "tiny.json").write_text("{}\n")
    text = script("workflows/watch.yml", "Open a pull request, or renew the one that is open")
    done = bash(text, here, "exit 1", {"gh": CALLS}, OPEN=opened, BRANCH="main")
    assert done.returncode == 0, done.stderr
    pushed = subprocess.run(
        ["git", "-C", origin, "show", "--name-only", "--format=", "watch"], capture_output=True, text=True, check=True
    )
    assert pushed.stdout.split() == ["reports/README.md", "reports/watch/tiny.json"]
    created = "gh pr create --base main --head watch --fill" in (here / "calls").read_text()
    assert created is not bool(opened)


DOCKER = 'printf "%s\\n" "$@" >> calls; env >> environment; eval "$MADE"'


@pytest.mark.parametrize(
    ("made", "status"),
    [("touch wheels/a-1.0.whl", 0), ("ln -s /etc/passwd wheels/a-1.0.whl", 1), ("mkdir wheels/a", 1), ("exit 3", 3)],
)
def test_a_wheel_is_built_in_the_image_of_the_case_which_is_given_the_requirement_alone(
    tmp_path: Path, made: str, status: int
) -> None:
    text = script("workflows/case.yml", "Build the wheel")
    image = 'echo "$*" >> calls; echo casebook/cpu:key'
    variables = {"CASE": "tiny", "ENVIRONMENT": "current", "REQUIREMENT": "git+https://example.org/a; rm -r *"}
    done = bash(text, tmp_path, image, {"docker": DOCKER}, MADE=made, **variables)
    assert done.returncode == status, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "images --name-of current -- tiny"
    options, inside = (
        calls[1 : calls.index("casebook/cpu:key")],
        "\n".join(calls[calls.index("casebook/cpu:key") + 1 :]),
    )
    assert [calls[1], *options[-4:]] == ["run", "--env", "REQUIREMENT", "--env", "PIP_DISABLE_PIP_VERSION_CHECK=1"]
    assert [each for each in options if "/" in each] == [f"{tmp_path}/wheels:/wheels"]
    assert not {"--privileged", "--network", "host"} & set(options)
    assert "runuser -u case -- /usr/bin/python3 -m pip --python /opt/env/bin/python" in inside
    assert "example.org" not in inside


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
    done_ = bash(
        text, tmp_path, f'exec {sys.executable} -m gpu_casebook "$@"', SELECTION="all", PYTHONPATH=str(ROOT / "runner")
    )
    assert done_.returncode == 0, done_.stderr
    assert "**1 of 2 confirmed**, 1 not-reproduced" in (tmp_path / "summary").read_text()
    assert "box-0 worker 1" in next((tmp_path / "reports" / "runs").glob("*/summary.json")).read_text()
    assert (tmp_path / "junit.xml").read_text().count("<testcase") == 2
    assert (tmp_path / "output").read_text() == "changes=0\n"
    assert "### Casebook" in (tmp_path / "comment.md").read_text()


def test_the_site_is_built_where_the_next_step_looks_for_it(checkout: Checkout) -> None:
    checkout.write()
    here = f'exec {sys.executable} -m gpu_casebook "$@"'
    text = script("workflows/corpus.yml", "All cases as a site")
    done = bash(text, checkout.root, here, REPOSITORY="https://example.org/casebook", PYTHONPATH=str(ROOT / "runner"))
    assert done.returncode == 0, done.stderr
    every = steps(HOME / "workflows/corpus.yml")
    step = next(each for each in every if "upload-pages-artifact" in each.get("uses", ""))
    assert (checkout.root / step["with"]["path"] / "cases" / "tiny" / "index.html").is_file()
