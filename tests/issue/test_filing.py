import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.issue.filing import file, gist
from casebook_workbench.releases.records import Bisection, Call, Question, Step, record_path
from failure_signature.kinds import Grade, Variant
from gpu_casebook.errors import CasebookError, UsageError
from gpu_casebook.evidence import CaseFacts, Evidence, evidence_path
from gpu_casebook.manifest.case import find
from gpu_casebook.report.watched import Sighting, State, Watched, watched_path
from tests.cli.test_cli import casebook
from tests.conftest import IMAGES, Checkout, write_locks
from tests.report.example import CASE, ENVIRONMENT, evidence, simulated

TOKEN = "hf_" + "AbCdEfGh" * 4
RAN = "A release of owner/name ran, with the defect; the fixed script works around it."


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = checkout.write().parent
    manifest = directory / "case.yaml"
    text = manifest.read_text().replace("provenance: distilled", "provenance: release-workaround\nbecause: no fix yet")
    manifest.write_text(text.replace("  current:\n", "  upstream:\n"))
    write_locks(directory)
    monkeypatch.chdir(checkout.root)
    return checkout.root


def facts(root: Path, **changed: Any) -> CaseFacts:
    case = find(root, "tiny", IMAGES)
    return CASE.model_copy(update={"id": "tiny", "digest": case.digest(), **changed})


def write(root: Path, run: Evidence, place: str = "reports") -> Path:
    path = evidence_path(root / place, run)
    run.write(path)
    return path


def test_the_best_evidence_is_taken_and_it_is_said(here: Path) -> None:
    write(here, simulated(case=facts(here), started=datetime(2026, 11, 22, tzinfo=UTC)))
    path = write(here, evidence(case=facts(here)))
    filed = file(here, "tiny", [here / "reports"])
    assert filed.run.environment.grade is Grade.HARDWARE
    assert f"from {path.name}: confirmed in environment upstream on NVIDIA H200 (hardware), 2026-11-21" in filed.notes
    assert "  passed over: confirmed in environment front-end on CPU (simulated), 2026-11-22" in filed.notes
    assert "def lost(x): return x * 0.5" in filed.issue.body


def test_own_runs_and_published_ones_are_looked_at(here: Path) -> None:
    write(here, simulated(case=facts(here)), "local")
    assert "confirmed in environment front-end on CPU (simulated)" in casebook("issue", "tiny")[1]
    write(here, evidence(case=facts(here)))
    assert "confirmed in environment upstream on NVIDIA H200 (hardware)" in casebook("issue", "tiny")[1]


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("distilled", "the scripts are minimal code with the same defect, written for this corpus."),
        ("pattern", "the scripts illustrate a mechanism."),
    ],
)
def test_what_ran_no_code_of_the_project_is_written_only_if_asked_for(here: Path, word: str, what: str) -> None:
    manifest = here / "cases" / "tiny" / "case.yaml"
    manifest.write_text(manifest.read_text().replace("provenance: release-workaround", f"provenance: {word}"))
    write(here, evidence(case=facts(here)))
    status, said = casebook("issue", "tiny", "-o", "report.md")
    ran = f"No code of owner/name ran: {what}"
    refused = f"casebook: tiny is {word}, which is no bug report for that project. {ran} --anyway writes it all"
    assert (status, said.strip()) == (2, f"{refused} the same, with this sentence first")
    assert not (here / "report.md").exists()
    assert casebook("issue", "tiny", "-o", "report.md", "--anyway")[0] == 0
    assert (here / "report.md").read_text().startswith(f"{ran}\n\n###")


def test_an_environment_that_is_named_is_taken(here: Path) -> None:
    write(here, evidence(case=facts(here)))
    other = ENVIRONMENT.model_copy(update={"name": "interpreter", "grade": Grade.SIMULATED})
    write(here, evidence(case=facts(here), environment=other))
    assert file(here, "tiny", [here / "reports"], "interpreter").run.environment.name == "interpreter"


def test_without_evidence_one_line_says_how_to_make_it(here: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no evidence of tiny; make it: nox -s case-tiny$"):
        file(here, "tiny", [here / "reports"])
    with pytest.raises(UsageError, match=r"in environment upstream; make it: .* -- --environment upstream$"):
        file(here, "tiny", [here / "reports"], "upstream")
    with pytest.raises(UsageError, match="did you mean upstream"):
        file(here, "tiny", [here / "reports"], "upstrem")


def test_evidence_that_is_named_must_be_of_this_case(here: Path) -> None:
    path = write(here, evidence())
    with pytest.raises(UsageError, match="that is a run of rwkv6-backward, not of tiny"):
        file(here, "tiny", [here / "reports"], evidence=path)
    path.write_text("{}")
    with pytest.raises(CasebookError, match="case: Field required"):
        file(here, "tiny", [here / "reports"], evidence=path)


def test_a_bug_that_is_fixed_is_asked_about_on_the_first_line(here: Path) -> None:
    write(here, evidence(case=facts(here)))
    status, said = casebook("issue", "tiny", "-o", "report.md")
    assert status == 0
    assert said.startswith("upstream has fixed this (1547448b998a163fdb33c49266da699db13f2dc8): why file it? See ")
    assert "### Describe the Bug" in (here / "report.md").read_text()


def test_an_open_bug_is_not(here: Path) -> None:
    upstream = CASE.upstream.model_copy(update={"status": "open"})
    write(here, evidence(case=facts(here, upstream=upstream)))
    assert "why file it" not in casebook("issue", "tiny", "-o", "report.md")[1]


def test_what_bisecting_and_watching_told_is_in_it(here: Path) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    write(here, evidence(case=facts(here)))
    steps = [
        Step(version=version, call=call, started=now)
        for version, call in (("2.1.0", Call.GOOD), ("2.2.0", Call.BAD), ("2.3.0", Call.BAD))
    ]
    question = Question(
        case="tiny",
        package="triton",
        environment="upstream",
        variant=Variant.REPRO,
        good="2.1.0",
        bad="2.3.0",
        alpha=0.01,
        engine="venv",
        digest="d",
    )
    found = Bisection(
        question=question,
        versions=["2.1.0", "2.2.0", "2.3.0"],
        steps=steps,
        first=["2.2.0"],
        started=now,
        command="nox -s bisect",
        runner="0.1.0",
    )
    found.write(record_path(here / "reports", "tiny", "triton"))
    seen = Sighting(
        state=State.FIXED,
        why="",
        versions={"triton": "3.6.0"},
        moved=["triton"],
        first_fixed=["3.0.0"],
        since=now,
        last=now,
        engine="venv",
        digest="d",
        runner="0.1.0",
    )
    Watched(case="tiny", history={"upstream": [seen]}).write(watched_path(here / "reports", "tiny"))
    filed = file(here, "tiny", [here / "reports"])
    assert "- `triton`: bad: 2.2.0, 2.3.0; good: 2.1.0; first bad release: 2.2.0" in filed.issue.body
    told = "triton 3.6.0, the newest releases: it fails no more, 2026-11-21; the first without it: 3.0.0"
    assert told in filed.issue.body
    assert "the newest releases have it no more (triton 3.6.0): why file it?" in filed.notes


def test_an_edited_case_is_noticed(here: Path) -> None:
    write(here, evidence(case=facts(here)))
    assert not any("edited" in note for note in file(here, "tiny", [here / "reports"]).notes)
    (here / "cases" / "tiny" / "repro.py").write_text("# changed\n")
    status, said = casebook("issue", "tiny", "-o", "report.md")
    assert status == 2
    assert "tiny was edited since this run (confirmed in environment upstream on NVIDIA H200 (hardware)" in said
    assert "): run it again: nox -s case-tiny -- --environment upstream; or add --anyway" in said
    assert not (here / "report.md").exists()
    assert casebook("issue", "tiny", "-o", "report.md", "--anyway")[0] == 0
    assert "The script has been edited since this run." in (here / "report.md").read_text()


def test_evidence_of_the_case_as_it_is_comes_before_better_evidence_of_an_older_one(here: Path) -> None:
    write(here, evidence(case=facts(here, digest="old")))
    write(here, simulated(case=facts(here)))
    assert file(here, "tiny", [here / "reports"]).run.environment.name == "front-end"


def test_what_readme_and_manifest_say_is_in_it(here: Path) -> None:
    directory = here / "cases" / "tiny"
    (directory / "README.md").write_text("# x\n\n## Why\nThe kernel drops\nits mask.\n\n## The fix\nNo.\n")
    manifest = directory / "case.yaml"
    manifest.write_text(manifest.read_text().replace("  upstream:\n", "  upstream:\n    variables: {MY_FLAG: '1'}\n"))
    write(here, evidence(case=facts(here)))
    body = file(here, "tiny", [here / "reports"]).issue.body
    assert "Why:\n\nThe kernel drops\nits mask.\n" in body
    assert "MY_FLAG=1 uv run" in body


def test_a_generic_form_is_owned_up_to(here: Path) -> None:
    note = "no form of somebody/else is known here: this is the generic one"
    for project, told in (("somebody/else", True), (CASE.upstream.project, False)):
        upstream = CASE.upstream.model_copy(update={"project": project})
        write(here, evidence(case=facts(here, upstream=upstream)))
        assert (note in file(here, "tiny", [here / "reports"]).notes) is told


def test_a_comment_has_no_title(here: Path) -> None:
    write(here, evidence(case=facts(here, upstream=CASE.upstream.model_copy(update={"status": "open"}))))
    said = casebook("issue", "tiny", "-o", "report.md")[1]
    assert f"a comment, as that report is open\nfor {CASE.upstream.issue}, " in said
    assert "title: " not in said


def test_the_report_alone_goes_to_stdout(here: Path) -> None:
    write(here, evidence(case=facts(here)))
    command = [sys.executable, "-m", "gpu_casebook", "issue", "tiny"]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "runner")}
    done = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{RAN}\n\n### Checklist")
    assert "title: [Bug] " in done.stderr
    assert "title: [Bug] " not in done.stdout


class TestGist:
    def test_the_files_to_attach(self, here: Path) -> None:
        write(here, evidence(case=facts(here)))
        status, said = casebook("issue", "tiny", "--gist", "attach", "-o", "report.md")
        assert status == 0, said
        names = {path.name for path in (here / "attach").iterdir()}
        assert names == {"repro.py", "fixed.py", "lock.upstream.txt", "report.md", "evidence.json"}
        assert (here / "attach" / "report.md").read_text().endswith((here / "report.md").read_text())
        assert Evidence.read(here / "attach" / "evidence.json").case.id == "tiny"

    def test_nothing_private_is_in_any_of_them(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "gpubox-17.example")
        script = here / "cases" / "tiny" / "repro.py"
        script.write_text(f"{script.read_text()}# on gpubox-17, HF_TOKEN={TOKEN}\n")
        run = evidence(case=facts(here), command="nox -s case-tiny  # in /home/jdoe/x")
        trials = [trial.model_copy(update={"stderr": f"/home/jdoe/x on gpubox-17: {TOKEN}"}) for trial in run.trials]
        write(here, run.model_copy(update={"trials": trials}))
        filed = file(here, "tiny", [here / "reports"])
        paths, counts = gist(filed, here / "attach", here)
        for path in paths:
            text = path.read_text()
            for secret in (TOKEN, "jdoe", "gpubox-17", str(here)):
                assert secret not in text, (path.name, secret)
        assert counts["token"] >= 7

    def test_versions_of_four_numbers_are_no_addresses(self, here: Path) -> None:
        assert ENVIRONMENT.attestation
        seen = ENVIRONMENT.attestation.model_copy(update={"packages": {"nvidia-cublas": "12.1.3.1"}})
        run = evidence(case=facts(here), environment=ENVIRONMENT.model_copy(update={"attestation": seen}))
        write(here, run)
        _, counts = gist(file(here, "tiny", [here / "reports"]), here / "attach", here)
        assert counts["address"] == 0
        told = json.loads((here / "attach" / "evidence.json").read_text())
        assert told["environment"]["attestation"]["packages"] == {"nvidia-cublas": "12.1.3.1"}

    def test_a_folder_with_something_in_it_is_left_alone(self, here: Path) -> None:
        write(here, evidence(case=facts(here)))
        (here / "attach").mkdir()
        (here / "attach" / "mine").touch()
        status, said = casebook("issue", "tiny", "--gist", "attach")
        assert (status, "not an empty folder" in said) == (2, True)


@pytest.mark.parametrize(
    ("remote", "link"),
    [
        ("https://github.com/owner/name.git", "https://github.com/owner/name/tree/{}/cases/tiny"),
        ("git@github.com:owner/name.git", "https://github.com/owner/name/tree/{}/cases/tiny"),
        ("https://joe:token@github.com/owner/name", "https://github.com/owner/name/tree/{}/cases/tiny"),
        ("/srv/git/name.git", None),
        (None, None),
    ],
)
def test_the_case_is_linked_where_its_repository_is_on_github(here: Path, remote: str | None, link: str | None) -> None:
    subprocess.run(["git", "init", "-q", str(here)], check=True)
    if remote:
        subprocess.run(["git", "-C", str(here), "remote", "add", "origin", remote], check=True)
    write(here, evidence(case=facts(here)))
    commands = ["add", "cases/tiny"], ["commit", "-q", "-m", "tiny"], ["commit", "-q", "-m", "x", "--allow-empty"]
    for words in commands:
        subprocess.run(
            ["git", "-C", str(here), "-c", "user.name=x", "-c", "user.email=x@example.org", *words], check=True
        )
    last = ["git", "-C", str(here), "rev-parse", "HEAD~1"]
    commit = subprocess.run(last, check=True, capture_output=True, text=True).stdout.strip()
    link = link and link.format(commit)
    body = file(here, "tiny", [here / "reports"]).issue.body
    assert (f"[tiny]({link})" in body) if link else ("`cases/tiny`" in body)
