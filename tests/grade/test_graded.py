"""Every case that can be graded: its files hold together, and what the text alone shows is refused."""

import shutil
from pathlib import Path

import pytest

from casebook_workbench.grade import rules
from casebook_workbench.grade.graded import SCRIPTS, load
from casebook_workbench.grade.task import statement
from gpu_casebook.errors import ManifestError, UsageError
from gpu_casebook.manifest.case import find, known_images
from tests import grade_table

ROOT = Path(__file__).parents[2]
CASES = grade_table.graded_cases()
MOST_LINES = 70


@pytest.mark.parametrize("case", CASES)
def test_the_files_of_each_case_hold_together(case: str) -> None:
    graded = grade_table.of(case)
    assert all(len(graded.texts[name].splitlines()) <= MOST_LINES for name in SCRIPTS)
    assert graded.texts["subject.py"] != graded.texts["fixed.py"]
    assert graded.requirements[0] in statement(graded) or not graded.requirements


@pytest.mark.parametrize("case", CASES)
def test_candidates_that_are_no_fix_are_refused_by_their_text_where_it_shows_that(case: str) -> None:
    graded = grade_table.of(case)
    found = {
        name: rules.breaches(graded.texts["subject.py"], text, graded.rules)
        for name, text in grade_table.degenerate(graded).items()
    }
    assert {name for name, against in found.items() if against} == set(grade_table.REFUSED_UNRUN)


def copied(tmp_path: Path, old: str = "", new: str = "", name: str = "grade.yaml") -> Path:
    """A checkout with one case that can be graded, one of its files changed."""
    case = CASES[0]
    shutil.copytree(ROOT / "cases" / case, tmp_path / "cases" / case)
    path = tmp_path / "cases" / case / "grade" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        ("grade.yaml", "environment:", "environ:", r"grade.yaml:1: environ: Extra inputs"),
        ("grade.yaml", "keeps: [", "keeps: [nothing_of_it, ", r"subject.py:1: no longer calls nothing_of_it"),
        ("subject.py", "def inputs", "def draws", r"subject.py:1: defines no inputs at its top"),
        ("fixed.py", "def inputs(seed)", "def inputs(seed=1)", r"fixed.py:1: line \d+: inputs is changed or moved"),
        ("check.py", "def reference", "from subject import solve\nsolve\n\n\ndef reference", "check.py:1: uses solve"),
        ("check.py", "def reference", "def refer ence", r"check.py:\d+: can't be parsed"),
    ],
)
def test_a_mistake_is_told_with_its_file(tmp_path: Path, name: str, old: str, new: str, what: str) -> None:
    root = copied(tmp_path, old, new, name)
    with pytest.raises(ManifestError, match=what):
        load(root, find(root, CASES[0], known_images(ROOT)))


def test_a_case_that_cannot_be_graded_says_so() -> None:
    with pytest.raises(UsageError, match="there is no cases/vllm-unmap-in-flight/grade/"):
        grade_table.of("vllm-unmap-in-flight")


@pytest.mark.parametrize("name", CASES)
def test_no_trial_of_a_case_gets_how_it_is_graded(name: str) -> None:
    payload = find(ROOT, name, known_images(ROOT)).payload()
    assert {"repro.py", "fixed.py"} <= payload.keys()
    hidden = {path.read_bytes() for path in (ROOT / "cases" / name / "grade").iterdir() if path.is_file()}
    assert len(hidden) >= len(SCRIPTS)
    assert not [each for each in payload if each.startswith("grade")]
    assert not hidden & set(payload.values())


def test_the_digest_of_a_case_is_the_same_with_and_without_grade(tmp_path: Path) -> None:
    root = copied(tmp_path)
    case = find(root, CASES[0], known_images(ROOT))
    digest = case.digest()
    shutil.rmtree(case.directory / "grade")
    assert case.digest() == digest
    (case.directory / "other.py").write_text("")
    assert case.digest() != digest
