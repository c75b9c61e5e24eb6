"""A candidate's way through its trials, on an engine that runs them with this Python."""

import difflib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from casebook_workbench.grade.graded import Graded, Grading
from casebook_workbench.grade.grading import Mark, candidate_text, grade
from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine, Prepared
from gpu_casebook.errors import MachineError, UsageError
from gpu_casebook.trial import Note, Recipe, TrialRequest
from tests import grade_table

CASE = "tokenizers-windows-lost"
SUBJECT = '''"""`solve` hands out twice x."""

import math


def inputs(seed):
    return {"x": seed % 1000 + 7}


def solve(x):
    return {"y": math.floor(x)}
'''
FIXED = SUBJECT.replace("math.floor(x)}", "2 * math.floor(x)}")
CHECK = "def reference(x):\n    return {'y': x + x}\n"


class Here(Engine):
    """Runs trials in directories, with this Python."""

    name = "here"
    isolation: Sequence[str] = ()
    version = "here 1"

    def __init__(self, place: Path) -> None:
        self.place = place
        self.seen: list[TrialRequest] = []

    def __enter__(self) -> Self:
        return self

    @classmethod
    def connect(cls, root: Path) -> Self:
        return cls(root)

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        return ()

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        return Prepared(key="here", python=sys.executable)

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        self.seen.append(request)
        directory = self.place / str(len(self.seen))
        directory.mkdir()
        for name, content in request.files.items():
            (directory / name).write_bytes(content)
        done = subprocess.run(
            [sys.executable, *request.arguments], cwd=directory, capture_output=True, text=True, check=False, timeout=60
        )
        return TrialResult(stdout=done.stdout, stderr=done.stderr, duration_s=1.0, exit_status=done.returncode)


def graded(**given: object) -> Graded:
    grading = Grading.model_validate({"environment": "cpu", "keeps": ["floor"], "rounds": 3} | given)
    texts = {"subject.py": SUBJECT, "fixed.py": FIXED, "check.py": CHECK}
    return replace(grade_table.of(CASE), grading=grading, texts=texts)


def marked(tmp_path: Path, text: str, **given: object) -> tuple[Mark, Here]:
    engine = Here(tmp_path)
    mark = grade(graded(**given), text, engine, Console(None), seed=11)
    assert isinstance(mark, Mark)
    return mark, engine


def test_the_known_fix_is_accepted_and_no_trial_has_both_candidate_and_check(tmp_path: Path) -> None:
    mark, engine = marked(tmp_path, FIXED)
    assert mark.verdict is Verdict.CONFIRMED
    assert not mark.against
    files = [set(request.files) for request in engine.seen]
    assert files == [{"rounds.py", "subject.py"}] * 2 + [{"rounds.py", "subject.py", "check.py"}]
    assert engine.seen[2].files["subject.py"] == SUBJECT.encode()
    assert [request.arguments[3:] for request in engine.seen] == [["11", "12", "13"]] * 3


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return {'y': math.floor(x)}", "round 1: y: 18 where it should be 36"),
        ("print('accepted'); math.floor", "round 1: nothing where there should be y"),
        ("raise KeyError(math.floor(x))", "round 1: exit status 1: KeyError: 18"),
        ("import os\n    os.kill(os.getpid(), 11 + 0 * math.floor(x))", "round 1: killed by SIGSEGV"),
        ("import check\n    return check.reference(math.floor(x))", "round 1: exit status 1: ModuleNotFoundError"),
        ("return {'y': 36 + 0 * math.floor(x)}", "round 2: y: 36 where it should be 38"),
    ],
)
def test_what_is_no_fix_is_refused(tmp_path: Path, body: str, why: str) -> None:
    mark, _ = marked(tmp_path, SUBJECT.replace('return {"y": math.floor(x)}', body))
    assert mark.verdict is Verdict.FIX_FAILS
    assert mark.against[0].startswith(why)


def test_what_ended_a_later_round_is_not_said_of_an_earlier_one(tmp_path: Path) -> None:
    body = "if x > 18:\n        raise KeyError(x)\n    return {'y': math.floor(x)}"
    mark, _ = marked(tmp_path, SUBJECT.replace('return {"y": math.floor(x)}', body))
    assert mark.against == ["round 1: y: 18 where it should be 36"]


def test_what_may_not_be_changed_is_told_before_anything_runs(tmp_path: Path) -> None:
    mark, engine = marked(tmp_path, FIXED.replace("seed % 1000", "0"))
    assert mark.against[0].startswith("line 6: inputs is changed")
    assert not engine.seen


def test_a_slow_candidate_is_run_again_before_it_is_refused(tmp_path: Path) -> None:
    slow = FIXED.replace("    return", "    import time\n    time.sleep(0.2)\n    return", 2)
    slow = slow.replace("    import time\n    time.sleep(0.2)\n    return", "    return", 1)
    mark, engine = marked(tmp_path, slow)
    assert mark.verdict is Verdict.FIX_FAILS
    assert "times as long as fixed.py; at most 3 times is allowed" in mark.against[0]
    assert len(engine.seen) == 3 + 2 * 2


def test_growth_is_seen_from_outside(tmp_path: Path) -> None:
    keeps = "math.__dict__.setdefault('kept', []).append(bytes([1]) * 2**23)"
    grown = FIXED.replace("    return {'y'".replace("'", '"'), f"    {keeps}\n    return {{'y'".replace("'y'", '"y"'))
    mark, _ = marked(tmp_path, grown, growth="4MiB")
    assert mark.against[0].startswith("grows by 8.")


def test_where_the_known_fix_fails_nothing_is_said_of_the_candidate(tmp_path: Path) -> None:
    broken = replace(graded(), texts={"subject.py": SUBJECT, "fixed.py": SUBJECT, "check.py": CHECK})
    mark = grade(broken, FIXED, Here(tmp_path), Console(None), seed=11)
    assert isinstance(mark, Mark)
    assert (mark.verdict, mark.against[0][:35]) == (Verdict.INCONCLUSIVE, "the case's own fixed.py fails here:")


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (TrialResult(stdout="", stderr="waits", duration_s=9.0, timed_out=True), "round 1: ran out of time"),
        (
            TrialResult(stdout="", stderr="", duration_s=9.0, out_of_memory=True),
            "round 1: ran out of memory",
        ),
        (TrialResult(stdout="", stderr="", duration_s=9.0, signal="SIGKILL"), "round 1: died"),
    ],
)
def test_a_process_that_the_engine_ended_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: TrialResult, why: str
) -> None:
    run = Here.run

    def ended(self: Here, prepared: Prepared, request: TrialRequest) -> TrialResult:
        return result if request.files["subject.py"] == b"\n" + FIXED.encode() else run(self, prepared, request)

    monkeypatch.setattr(Here, "run", ended)
    mark, _ = marked(tmp_path, "\n" + FIXED)
    assert mark.verdict is Verdict.FIX_FAILS
    assert mark.against == [why]


def test_a_trial_that_could_not_be_run_says_nothing_of_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = TrialResult(stdout="", stderr="", duration_s=0.0, infra="the disk is gone")
    monkeypatch.setattr(Here, "run", lambda *_: broken)
    with pytest.raises(MachineError, match="a trial can't be run: the disk is gone"):
        marked(tmp_path, FIXED)


@pytest.mark.parametrize("prefix", ["a/ b/", "a/cases/x/grade/ b/cases/x/grade/", " "])
def test_a_diff_of_the_subject_is_applied(tmp_path: Path, prefix: str) -> None:
    before, after = (f"{each}subject.py" for each in prefix.split(" "))
    old, new = (text.splitlines(keepends=True) for text in (SUBJECT, FIXED))
    path = tmp_path / "fix.diff"
    path.write_text("".join(difflib.unified_diff(old, new, before, after)))
    assert candidate_text(path, graded()) == FIXED


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        ("", "changes no file; it must change subject.py alone"),
        ("--- a/check.py\n+++ b/check.py\n@@ -1 +1 @@\n-a\n+b\n", "changes b/check.py"),
        ("--- a/subject.py\n+++ b/subject.py\n@@ -1 +1 @@\n-a\n+b\n", "does not apply to cases/"),
    ],
)
def test_another_diff_is_refused_in_one_line(tmp_path: Path, diff: str, why: str) -> None:
    path = tmp_path / "fix.diff"
    path.write_text(diff)
    with pytest.raises(UsageError, match=why) as caught:
        candidate_text(path, graded())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_all_candidates_of_a_real_case_on_the_venv_engine(request: pytest.FixtureRequest) -> None:
    from failure_signature.kinds import Variant
    from gpu_casebook.engines.venv.engine import VenvEngine
    from gpu_casebook.run.plan import recipe

    real = grade_table.of(CASE)
    with VenvEngine() as engine:
        if engine.absent([recipe(real.case, real.grading.environment, Variant.REPRO)]):
            pytest.skip("its environment is not built here; building it takes a package index")
        passed = {name: accepted for name, accepted, _ in grade_table.rows(real, engine, Console(None))}
    assert len(passed) == 10
    assert [name for name, accepted in passed.items() if accepted] == [grade_table.FIX]
