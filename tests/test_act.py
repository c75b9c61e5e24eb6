"""The workflows, run by act: jobs, matrices, conditions and outputs as on GitHub, with a real Docker engine.

Steps run on this host. Actions that can't be fetched here are replaced by steps that do the same with directories;
`gh` only writes down what it was asked.
"""

import html
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from casebook_workbench.corpus.journal import Journal
from casebook_workbench.corpus.model import Run
from gpu_casebook import __version__
from tests.corpus.report.example import finished, job, run
from tests.fakes import locked

pytestmark = [pytest.mark.docker, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
PYTHON = "3.11"
CASE = """\
id: plain
title: A program that fails
failure: exception
upstream: {project: owner/name, status: open, issue: "https://example.org/owner/name/issues/1"}
provenance: distilled
environments:
  one: {image: cpu, requirements: []}
  card: {image: cuda13, requirements: [], gpus: 1, compute_capability: ">=9.0,<10.0"}
  later: {image: cuda13, requirements: [], gpus: 1, compute_capability: ">=99.0"}
repro:
  expect: {exception: ValueError, message: sizes differ}
fixed:
  expect: {message: all good}
"""
CALLER = """\
on: workflow_dispatch
jobs:
  casebook:
    uses: ./.github/workflows/case.yml
    with: {repository: owner/casebook, ref: refs/heads/main, case: plain, environment: one, runner: hosted}
  no-machine:
    uses: ./.github/workflows/case.yml
    with: {repository: owner/casebook, ref: refs/heads/main, case: plain, environment: card, runner: gpu1}
  its-branch:
    uses: ./.github/workflows/case.yml
    with:
      repository: owner/casebook
      ref: refs/heads/main
      case: plain
      environment: one
      runner: hosted
      requirement: WHEEL
      artifact: branch
"""
BUILDS = """\
import os, sys, zipfile

def build_wheel(into, *more):
    name = "branch-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(into, name), "w") as wheel:
        told = [sys.prefix, str(os.getuid()), os.confstr("CS_GNU_LIBC_VERSION"), *sorted(os.environ)]
        wheel.writestr("branch.py", f"TOLD = {told!r}")
        wheel.writestr("branch-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: branch\\nVersion: 1.0\\n")
        wheel.writestr("branch-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("branch-1.0.dist-info/RECORD", "")
    return name
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "builds"
backend-path = ["."]
"""
DOCKER = """\
#!/bin/bash
# The engine of these tests has no network of its own to give.
[ "$1" != run ] || set -- run --network host "${@:2}"
exec REAL "$@"
"""
ACTIONS = {
    "actions/checkout": 'cp -R "$ARTIFACTS/../casebook/." .',  # act itself copies where no input names a repository
    "astral-sh/setup-uv": """\
        uv venv --quiet --clear --python "$PYTHON_VERSION" "$VENV_PATH"
        echo "VIRTUAL_ENV=$VENV_PATH" >> "$GITHUB_ENV"
        echo "$VENV_PATH/bin" >> "$GITHUB_PATH"
""",
    "actions/upload-artifact": """\
        mkdir "$ARTIFACTS/$NAME"  # fails, as on GitHub, for a name that is there
        for path in $PATH_; do
          [ ! -d "$path" ] || [ "$path" != "$PATH_" ] || path=$path/.
          [ ! -e "$path" ] || cp -R "$path" "$ARTIFACTS/$NAME/"
        done
""",
    "actions/download-artifact": """\
        mkdir -p "${PATH_:=.}"
        if [ -n "$NAME" ]; then NAME=$NAME/.; fi
        cp -R "$ARTIFACTS"/${NAME:-$PATTERN} "$PATH_"
""",
    "actions/upload-pages-artifact": 'cp -R "$PATH_" "$ARTIFACTS/github-pages"',
    "actions/deploy-pages": 'cp -R "$ARTIFACTS/github-pages" "$ARTIFACTS/deployed"',
    "pypa/gh-action-pypi-publish": 'cp -R dist "$ARTIFACTS/published"',
}
INPUTS = ("name", "path", "pattern", "python-version", "venv-path")
GH = """\
#!/bin/bash
echo "$*" >> "$ARTIFACTS/gh"
case "$1 $2" in
  'run list') echo 41 ;;
  'run download') mkdir -p "${@: -1}" && cp -R "$ARTIFACTS/../earlier/runs/." "${@: -1}" ;;
  'issue create') cat "${@: -1}" >> "$ARTIFACTS/gh" ;;
esac
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A commit of this checkout as it is, with one case in the place of all."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    top = tmp_path / "casebook"
    for name in listed.stdout.splitlines():
        if not name.startswith(("cases/", "reports/", "tests/")) and (ROOT / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, top / name)
    case = top / "cases" / "plain"
    (case / "locks").mkdir(parents=True)
    for path, text in {
        "case.yaml": CASE,
        "repro.py": "raise ValueError('sizes differ')\n",
        "fixed.py": "print('all good')\n",
        "locks/one.txt": locked([]),
        "locks/card.txt": locked([]),
        "locks/later.txt": locked([]),
    }.items():
        (case / path).write_text(text)
    (top / "reports").mkdir()
    (top / "reports" / "README.md").write_text("# Reports\n")
    (top / ".github" / "workflows" / "caller.yml").write_text(CALLER)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=top, check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://github.com/owner/casebook"], cwd=top, check=True)
    return top


@pytest.fixture
def branch(tmp_path: Path) -> Iterator[str]:
    """The address of a project's source on this host, which needs nothing else to be built."""
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / "branch-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"pyproject.toml": PROJECT, "builds.py": BUILDS}.items():
            entry = tarfile.TarInfo(f"branch-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/branch-1.0.tar.gz"
        server.shutdown()


def act(top: Path, event: str, workflow: str, options: Sequence[str] = (), **told: str) -> tuple[int, str, Path]:
    """Return the exit status, the log, and the directory of the artifacts. `told`: what else the event says."""
    home = top.parent
    artifacts, tools = home / "artifacts", home / "tools"
    for directory in (artifacts, tools):
        directory.mkdir()
    for name, text in {"gh": GH, "docker": DOCKER.replace("REAL", str(shutil.which("docker")))}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (home / "event.json").write_text(json.dumps({"repository": {"default_branch": "main"}} | told))
    command = [str(Path(sys.executable).with_name("act")), event, "-W", f".github/workflows/{workflow}.yml", *options]
    command += ["--eventpath", str(home / "event.json"), "--action-cache-path", str(home / "cache")]
    command += ["--container-daemon-socket", "-", "--pull=false", "--concurrent-jobs", "1"]
    for machine in ("ubuntu-24.04", "gpu-box"):
        command += ["-P", f"{machine}=-self-hosted"]
    for pinned in stubs(top, home / "actions"):
        command += ["--local-repository", f"{pinned}={home / 'actions' / pinned.partition('@')[0]}"]
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    # No step installs into the environment of this test.
    given = os.environ | {"VIRTUAL_ENV": str(home / "none"), "PATH": path, "ARTIFACTS": str(artifacts)}
    given.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*command, "--env", f"ARTIFACTS={artifacts}"],
        cwd=top,
        env=given,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=1200,
    )
    if kept := os.environ.get("CASEBOOK_ACT_LOG"):
        with Path(kept).open("a") as file:
            file.write(done.stdout)
    return done.returncode, done.stdout, artifacts


def stubs(top: Path, actions: Path) -> set[str]:
    """Write a composite action for each that the workflows use, and return them as pinned."""
    text = "".join(path.read_text() for path in (top / ".github").rglob("*.yml"))
    used = set(re.findall(r"uses: ([\w-]+/[\w-]+@[0-9a-f]{40})", text))
    variables = {name.replace("-", "_").upper(): f"${{{{ inputs.{name} }}}}" for name in INPUTS}
    variables["PATH_"] = variables.pop("PATH")
    for name in {each.partition("@")[0] for each in used}:
        (actions / name).mkdir(parents=True)
        step = {"shell": "bash", "env": variables, "run": ACTIONS[name]}
        stub = {"name": name, "inputs": {key: {} for key in INPUTS}, "runs": {"using": "composite", "steps": [step]}}
        (actions / name / "action.yml").write_text(json.dumps(stub))  # which is YAML too
    return used


def succeeded(log: str) -> set[str]:
    return set(re.findall(r"^\[[\w-]+/(.+?) *\] .*Job succeeded", log, re.MULTILINE))


def earlier(reports: Path, before: Run) -> None:
    (reports / "runs" / before.id).mkdir(parents=True)
    with Journal.create(reports, before.model_copy(update={"finished": []})) as record:
        record.append(before.finished)


def test_a_night_from_the_matrix_to_the_pages_and_the_issue(top: Path) -> None:
    earlier(top.parent / "earlier", run([finished(job("removed"))], night=-700))
    variables = ["--var", 'CASEBOOK_RUNNERS={"gpu1-sm90": "gpu-box"}', "--var", "CASEBOOK_PAGES=true"]
    status, log, artifacts = act(top, "schedule", "corpus", variables)
    assert status == 0, log
    assert succeeded(log) == {"matrix", "plain/one", "plain/card", "report", "pages", "changes"}
    comment = (artifacts / "corpus-report" / "comment.md").read_text()
    assert "**1 of 1 confirmed**. Without a verdict: 2 skipped." in comment
    assert "no runner is named that has 1 GPU of compute capability >=99.0" in html.unescape(comment).replace("\\", "")
    assert (artifacts / "corpus-report" / "evidence" / "plain" / "one.docker.cpu.json").is_file()
    assert (artifacts / "deployed" / "reports" / "plain.html").is_file()
    calls = (artifacts / "gh").read_text()
    assert "issue create --title The nightly run changed --body-file comment.md" in calls
    assert "removed/current" in calls


def test_without_a_machine_named_nothing_waits_for_one(top: Path) -> None:
    status, log, artifacts = act(top, "workflow_dispatch", "corpus", ["--input", "cases=plain", "-j", "gpu"])
    assert status == 0, log
    assert succeeded(log) == {"matrix"}
    assert [path.name for path in artifacts.glob("corpus-part-*")] == ["corpus-part-none"]


def test_a_case_in_another_projects_run(top: Path, branch: str) -> None:
    caller = top / ".github" / "workflows" / "caller.yml"
    caller.write_text(caller.read_text().replace("WHEEL", f"branch @ {branch}"))
    status, log, artifacts = act(top, "workflow_dispatch", "caller")
    assert status == 1, log
    assert succeeded(log) == {"case/plain", "case/wheel for plain"}
    assert "confirmed was expected, and the verdict is skipped" in log
    assert (artifacts / "casebook-plain-one-" / "evidence" / "plain" / "one.docker.cpu.json").is_file()
    (wheel,) = (artifacts / "casebook-wheel-plain-one-branch").iterdir()
    told = zipfile.ZipFile(wheel).read("branch.py").decode()
    assert "TOLD = ['/opt/env', '1000', 'glibc 2.36'," in told, "not built in the case's image"
    assert not {"GITHUB_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ARTIFACTS"} & set(told.split("'"))
    (evidence,) = (artifacts / "casebook-plain-one-branch" / "evidence" / "plain").iterdir()
    assert "put over the lock: branch-1.0-py3-none-any.whl" in evidence.read_text()


@pytest.fixture
def tagged(top: Path) -> Path:
    """With all that a wheel brings."""
    for name in ("evidence", "bisect", "watch"):
        (top / "reports" / name).mkdir()
        (top / "reports" / name / "README.md").touch()
    return top


def release(top: Path, tag: str, *options: str) -> tuple[int, str, Path]:
    return act(top, "push", "release", ["--matrix", f"python:{PYTHON}", *options], ref=f"refs/tags/{tag}")


def test_a_tag_becomes_a_wheel_that_runs_and_a_draft_with_its_changes(tagged: Path) -> None:
    status, log, artifacts = release(tagged, f"v{__version__}")
    assert status == 0, log
    assert succeeded(log) == {"build", f"the wheel with Python {PYTHON}", "publish", "draft"}
    names = [f"gpu_casebook-{__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz")]
    assert sorted(path.name for path in (artifacts / "published").iterdir()) == names
    assert "| plain  exception  owner/name" in log, "casebook list, of the packaged corpus"
    notes = (artifacts / "release-notes" / "notes.md").read_text()
    assert notes.strip()
    assert not re.search("(?m)^## ", notes)
    calls = (artifacts / "gh").read_text()
    assert f"\nrelease create v{__version__} --draft --verify-tag --title v{__version__} --notes-file notes" in calls


@pytest.mark.parametrize(
    ("tag", "changes", "said"),
    [
        ("v0.0.1", "# Changes\n", f"the tag is v0.0.1, and the version {__version__}"),
        (f"v{__version__}", "# Changes\n\n## 0.0.1\n\n- Old.\n", f"CHANGELOG.md has no section ## {__version__}"),
    ],
)
def test_a_tag_that_is_not_the_version_or_has_no_changes_is_no_release(
    tagged: Path, tag: str, changes: str, said: str
) -> None:
    (tagged / "CHANGELOG.md").write_text(changes)
    status, log, artifacts = release(tagged, tag)
    assert (status, said in log) == (1, True), log
    assert succeeded(log) == set()
    assert not (artifacts / "published").exists()
