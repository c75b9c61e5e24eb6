import subprocess
from pathlib import Path
from typing import Any

import pytest

from casebook_workbench.corpus.model import End, Finished, Job
from casebook_workbench.corpus.selection import (
    _DECIDES_NOTHING,
    Chosen,
    Look,
    Selection,
    as_it_is,
    environment_key,
    select,
)
from gpu_casebook.errors import UsageError
from gpu_casebook.manifest.case import Case, find
from tests.conftest import MANIFEST, Checkout, write_locks
from tests.corpus.test_journal import finished

HANG = MANIFEST.replace("project: owner/name", "project: Other/Project")


def add(checkout: Checkout, name: str, manifest: str = MANIFEST) -> Path:
    directory = checkout.write(manifest.replace("id: tiny", f"id: {name}"), name=name).parent
    write_locks(directory)
    return directory


@pytest.fixture
def three(checkout: Checkout) -> Checkout:
    """Three cases, each with an environment with a GPU, `current`, and one without, `interpreter`."""
    add(checkout, "alpha-one")
    add(checkout, "alpha-two", MANIFEST.replace("failure: wrong-numbers", "failure: non-finite"))
    add(checkout, "beta", HANG)
    return checkout


def chosen(checkout: Checkout, look: Look = as_it_is, **asked: Any) -> Chosen:
    return select(checkout.root, Selection(**asked), look)


def with_key(case: Case, job: Job) -> Job:
    return job.model_copy(update={"environment_key": environment_key(case, job.environment)})


def names(found: Chosen) -> list[str]:
    return [job.name for job in found.jobs]


def test_every_environment_of_every_case_is_a_job(three: Checkout) -> None:
    cases = ("alpha-one", "alpha-two", "beta")
    assert names(chosen(three)) == [f"{case}/{name}" for case in cases for name in ("current", "interpreter")]
    assert chosen(three).ended == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cases": ["alpha-*"], "environment": ["current"]}, ["alpha-one/current", "alpha-two/current"]),
        ({"cases": ["alpha-two", "b*"], "grade": ["hardware"]}, ["alpha-two/current", "beta/current"]),
        ({"failure": ["non-finite"], "environment": ["inter*"]}, ["alpha-two/interpreter"]),
        ({"failure": ["non-finite", "wrong-numbers"], "environment": ["current"], "cases": ["*o*"]},
         ["alpha-one/current", "alpha-two/current"]),
        ({"project": ["other/project"], "grade": ["simulated"]}, ["beta/interpreter"]),
        ({"project": ["OWNER/*"], "grade": ["simulated"]}, ["alpha-one/interpreter", "alpha-two/interpreter"]),
    ],
)  # fmt: skip
def test_each_option_narrows_down(three: Checkout, asked: dict[str, Any], expected: list[str]) -> None:
    assert names(chosen(three, **asked)) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cases": ["gamma*"]}, "no case is called 'gamma*' (there are: alpha-one, alpha-two, beta)"),
        (
            {"failure": ["hang"]},
            "nothing is selected by --failure hang; the 3 cases looked at have failure: non-finite",
        ),
        (
            {"cases": ["beta"], "project": ["x/*"]},
            "beta --project 'x/*'; the case looked at has failure: wrong-numbers",
        ),
        ({"environment": ["currant"]}, "environment: current, interpreter; grade: hardware, simulated"),
    ],
)
def test_what_selects_nothing_is_told_what_there_is(three: Checkout, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(three, **asked)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_job_says_what_its_manifest_asks_for(checkout: Checkout) -> None:
    add(checkout, "tiny", MANIFEST.replace("gpus: 1", "gpus: 2\n    alone: false"))
    job = chosen(checkout).jobs[0]
    assert (job.gpus, job.shared, job.compute_capability) == (2, True, ">=7.0,<10.0")
    assert (job.failure, job.project, job.grade.value) == ("wrong-numbers", "owner/name", "hardware")


def test_equal_environments_have_equal_keys(three: Checkout) -> None:
    lock = three.root / "cases" / "beta" / "locks" / "interpreter.txt"
    lock.write_text(lock.read_text().replace("sha256:2a", "sha256:2b"))
    keys = {job.name: job.environment_key for job in chosen(three, with_key).jobs}
    assert keys["alpha-one/interpreter"] == keys["alpha-two/interpreter"] != keys["beta/interpreter"]
    assert keys["alpha-one/interpreter"] != keys["alpha-one/current"]  # another image


def test_a_broken_manifest_is_its_own_result_and_the_others_go_on(three: Checkout) -> None:
    path = three.root / "cases" / "alpha-two" / "case.yaml"
    path.write_text(path.read_text().replace("gpus: 1", "gpus: one").replace("2m", "soon"))
    found = chosen(three, failure=["wrong-numbers"], environment=["current"])
    assert names(found) == ["alpha-one/current", "alpha-two", "beta/current"]
    broke = found.ended[0]
    assert (broke.job.name, broke.end, broke.verdict) == ("alpha-two", End.BROKE, None)
    assert broke.reason.startswith("cases/alpha-two/case.yaml:14: environments.current.gpus: ")
    assert broke.reason.endswith("(and 1 more)")
    assert names(chosen(three, cases=["beta"])) == ["beta/current", "beta/interpreter"]


def test_a_manifest_that_breaks_the_reader_is_its_own_result(three: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(root: Path, id_: str, images: list[str]) -> object:
        if id_ == "beta":
            raise RecursionError("too deep")
        return find(root, id_, images)

    monkeypatch.setattr("casebook_workbench.corpus.selection.find", breaks)
    found = chosen(three, environment=["current"])
    assert [(each.job.name, each.reason) for each in found.ended] == [
        ("beta", "it can't be read: RecursionError: too deep")
    ]
    assert len(found.jobs) == 3


def test_a_missing_lock_breaks_that_environment_alone(three: Checkout) -> None:
    (three.root / "cases" / "beta" / "locks" / "current.txt").unlink()
    ended = chosen(three, with_key).ended
    assert [(each.job.name, each.end) for each in ended] == [("beta/current", End.BROKE)]
    assert ended[0].reason.startswith("cases/beta/locks/current.txt:1: there is no lock")


def test_each_job_that_is_selected_is_looked_at(three: Checkout) -> None:
    def look(case: Case, job: Job) -> Job | Finished:
        if case.id == "beta":
            return finished(job.model_copy(update={"expected_s": 7.0}), end=End.REUSED)
        return job.model_copy(update={"because": "new"})

    found = chosen(three, look, cases=["beta", "alpha-one"], environment=["interpreter"])
    assert [(job.name, job.because, job.expected_s) for job in found.jobs] == [
        ("alpha-one/interpreter", "new", None),
        ("beta/interpreter", "", 7.0),
    ]
    assert [each.end for each in found.ended] == [End.REUSED]


def test_a_selection_reads_as_on_the_command_line() -> None:
    assert str(Selection()) == "all"
    asked = Selection(cases=["rwkv*"], failure=["hang", "race"], grade=["hardware"], changed_since="main")
    assert str(asked) == "'rwkv*' --failure hang --failure race --grade hardware --changed-since main"


class TestChangedSince:
    @pytest.fixture
    def history(self, three: Checkout) -> Checkout:
        """All of it committed once, as `start`, on a branch `main`."""
        common = three.root / "images" / "common"
        common.mkdir()
        (common / "system.Dockerfile").write_text("FROM base\n")
        for path in ("runner/failure_signature/judging/verdict.py", "runner/gpu_casebook/report/pages.py"):
            (three.root / path).parent.mkdir(parents=True)
            (three.root / path).write_text("pass\n")
        git(three, "init", "--quiet", "--initial-branch=main")
        commit(three)
        git(three, "tag", "start")
        return three

    def changed(self, checkout: Checkout, revision: str = "start") -> list[str]:
        return names(chosen(checkout, changed_since=revision, environment=["interpreter"]))

    def test_nothing_changed_selects_nothing_and_is_no_mistake(self, history: Checkout) -> None:
        assert self.changed(history) == []

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_file_of_a_case(self, history: Checkout, committed: bool) -> None:  # noqa: FBT001
        (history.root / "cases" / "beta" / "repro.py").write_text("print('other')\n")
        if committed:
            commit(history)
        assert self.changed(history) == ["beta/interpreter"]

    def test_a_new_case_and_a_new_file(self, history: Checkout) -> None:
        add(history, "gamma")
        (history.root / "cases" / "beta" / "data.txt").write_text("new\n")
        assert self.changed(history) == ["beta/interpreter", "gamma/interpreter"]

    def test_a_case_that_was_removed_is_no_case(self, history: Checkout) -> None:
        (history.root / "cases" / "beta" / "case.yaml").unlink()
        assert self.changed(history) == []

    def test_an_image_is_that_of_the_cases_on_it(self, history: Checkout) -> None:
        manifest = MANIFEST.replace("image: cuda13", "image: cuda12")
        add(history, "alpha-one", manifest)
        commit(history)
        git(history, "tag", "later")
        (history.root / "images" / "cuda12" / "Dockerfile").write_text("FROM other\n")
        assert self.changed(history, "later") == ["alpha-one/interpreter"]

    @pytest.mark.parametrize(
        "path", ["images/common/system.Dockerfile", "images/bases.toml", "runner/failure_signature/judging/verdict.py"]
    )
    def test_what_every_case_rests_on(self, history: Checkout, path: str) -> None:
        (history.root / path).write_text("other\n")
        assert len(self.changed(history)) == 3

    @pytest.mark.parametrize(
        "path",
        [
            "README.md",
            "runner/gpu_casebook/report/pages.py",
            "runner/casebook_workbench/author/fix.py",
            "docs/runner/failure_signature/judging/x.py",
        ],
    )
    def test_what_no_verdict_rests_on(self, history: Checkout, path: str) -> None:
        (history.root / path).parent.mkdir(parents=True, exist_ok=True)
        (history.root / path).write_text("other\n")
        assert self.changed(history) == []

    def test_the_parts_of_the_runner_that_decide_nothing_are_there(self) -> None:
        root = Path(__file__).parents[2]
        assert [part for part in _DECIDES_NOTHING if not (root / "runner/gpu_casebook" / part).exists()] == []

    def test_what_went_on_elsewhere_since_the_branch_left_is_not_ours(self, history: Checkout) -> None:
        git(history, "checkout", "--quiet", "-b", "mine")
        (history.root / "cases" / "beta" / "repro.py").write_text("print('mine')\n")
        commit(history)
        git(history, "checkout", "--quiet", "main")
        (history.root / "cases" / "alpha-one" / "repro.py").write_text("print('theirs')\n")
        commit(history)
        git(history, "checkout", "--quiet", "mine")
        assert self.changed(history, "main") == ["beta/interpreter"]

    def test_it_narrows_down_like_the_others(self, history: Checkout) -> None:
        for case in ("alpha-one", "beta"):
            (history.root / "cases" / case / "repro.py").write_text("print('other')\n")
        assert names(chosen(history, changed_since="start", cases=["a*"], grade=["simulated"])) == [
            "alpha-one/interpreter"
        ]
        assert names(chosen(history, changed_since="start", failure=["hang"])) == []

    @pytest.mark.parametrize("revision", ["nonsense", "--help", "start:cases", "start..main", ""])
    def test_a_revision_that_git_does_not_know(self, history: Checkout, revision: str) -> None:
        with pytest.raises(UsageError) as caught:
            self.changed(history, revision)
        assert str(caught.value).startswith(f"--changed-since {revision}: git knows no such revision here (there are: ")
        assert "start" in str(caught.value)
        assert "main" in str(caught.value)

    def test_a_checkout_without_history(self, three: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(three.root.parent))
        with pytest.raises(UsageError, match="no git history"):
            self.changed(three)


def git(checkout: Checkout, *words: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(checkout.root), *identity, *words], check=True, capture_output=True)


def commit(checkout: Checkout) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "x")
