"""Which cases can be graded, and by what: the files of `cases/<case>/grade/`, which no trial of the case gets."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from casebook_workbench.grade import rules
from failure_signature.expectation import Model
from failure_signature.kinds import Variant
from failure_signature.text import one_line
from gpu_casebook.errors import ManifestError, Problem, UsageError
from gpu_casebook.files import read_text, unreadable
from gpu_casebook.manifest.case import MAX_SCRIPT_BYTES, Case, nearest
from gpu_casebook.manifest.document import read
from gpu_casebook.manifest.model import Bytes
from gpu_casebook.places import grading_of

SCRIPTS = ("subject.py", "fixed.py", "check.py")


class Grading(Model):
    """What `grade.yaml` says."""

    environment: str = Field(description="Of the case; candidates run with the packages that repro has there.")
    may_change: list[str] = Field(["solve"], min_length=1, description="Functions and classes of subject.py.")
    keeps: list[str] = Field(min_length=1, description="What has the defect, and must still be used: the last name.")
    relative: Annotated[float, Field(ge=0)] = Field(0.0, description="Numbers may differ by so much of the reference.")
    absolute: Annotated[float, Field(ge=0)] = Field(0.0, description="And by so much besides.")
    slower: Annotated[float, Field(ge=1)] = Field(3.0, description="So many times the time of fixed.py is allowed.")
    growth: Bytes | None = Field(None, description="What the process may grow by in a round: '1MiB'.")
    rounds: Annotated[int, Field(ge=2, le=100)] = Field(5, description="Calls of solve, each with a seed of its own.")


@dataclass(frozen=True)
class Graded:
    """A case that can be graded. `texts` has the scripts by their names."""

    case: Case
    grading: Grading
    texts: dict[str, str]

    @property
    def rules(self) -> dict[str, Any]:
        """Return what `casebook_workbench.grade.rules` asks for, as JSON has it."""
        return self.grading.model_dump(exclude={"environment", "rounds"})

    @property
    def requirements(self) -> list[str]:
        return self.case.requirements(self.grading.environment, Variant.REPRO)

    @property
    def demand(self) -> str:
        """Return what solve must do: the docstring of subject.py."""
        return ast.get_docstring(ast.parse(self.texts["subject.py"])) or ""


def gradable(root: Path) -> list[str]:
    """Return the ids of all cases that can be graded, sorted."""
    return sorted(path.parents[1].name for path in root.glob(str(grading_of(Path(), "*"))))


def load(root: Path, case: Case) -> Graded:
    """Return how a case is graded. Raises UsageError where it can't be, and ManifestError for mistakes in its files."""
    path = grading_of(root, case.id)
    directory, shown = path.parent, str(path.relative_to(root))
    if not path.is_file():
        there = gradable(root)
        raise UsageError(f"case {case.id} can't be graded: there is no {shown}{nearest(case.id, there)}")
    with path.open("rb") as file:
        document = read(file)
    problems = [Problem(shown, flaw.line, "", flaw.what) for flaw in document.flaws]
    grading = None
    if not problems:
        try:
            grading = Grading.model_validate(document.data)
        except ValidationError as error:
            problems = [
                Problem(shown, document.line(each["loc"]), ".".join(map(str, each["loc"])), one_line(each["msg"], 200))
                for each in error.errors()
            ]
    texts = {name: _read(directory / name, str((directory / name).relative_to(root)), problems) for name in SCRIPTS}
    if grading is None or problems:
        raise ManifestError(problems)
    case.environment(grading.environment)
    graded = Graded(case, grading, texts)
    if wrong := list(_mistakes(graded, shown.removesuffix("grade.yaml"))):
        raise ManifestError(wrong)
    return graded


def _read(path: Path, shown: str, problems: list[Problem]) -> str:
    try:
        text = read_text(path, MAX_SCRIPT_BYTES)
        ast.parse(text)
    except OSError as error:
        problems.append(Problem(shown, 1, "", unreadable(error)))
    except SyntaxError as error:
        problems.append(Problem(shown, error.lineno or 1, "", f"can't be parsed: {error.msg}"))
    else:
        return text
    return ""


def _mistakes(graded: Graded, place: str) -> Sequence[Problem]:
    """Return what is wrong with the scripts: the fix must keep to the rules, and the subject must have the names."""
    subject, fixed, check = (graded.texts[name] for name in SCRIPTS)
    wanted = {"subject.py": {"inputs", *graded.grading.may_change}, "check.py": {"reference"}}
    found = [
        Problem(f"{place}{name}", 1, "", f"defines no {missing} at its top")
        for name, names in wanted.items()
        for missing in sorted(names - _defined(graded.texts[name]))
    ]
    for name, text in (("subject.py", subject), ("fixed.py", fixed)):
        found += [Problem(f"{place}{name}", 1, "", each) for each in rules.breaches(subject, text, graded.rules)]
    if not graded.demand:
        found.append(Problem(f"{place}subject.py", 1, "", "has no docstring that says what solve must hand out"))
    if "solve" in {node.id for node in ast.walk(ast.parse(check)) if isinstance(node, ast.Name)}:
        found.append(Problem(f"{place}check.py", 1, "", "uses solve; the reference must not come from the subject"))
    return found


def _defined(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
