"""ARCHITECTURE.md is true: its paths exist, its layers are those that lint holds, and its lists are complete."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "runner" / "gpu_casebook"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PATH = re.compile(r"`((?:\.?[\w-]+/)*[\w.-]+(?:/|\.py|\.md|\.yml|\.toml|\.tsv|\.j2|\.json))`")
MOST_NOUNS = 42
MOST_CODE = 2700
"""Lines of the spine's code: about an hour."""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def place(path: str) -> Path | None:
    """Where a path of the page leads; guest scripts are also named without their folder."""
    places = (PACKAGE / path, ROOT / "runner" / path, ROOT / path, PACKAGE / "guest" / path)
    return next((at for at in places if at.exists()), None)


def rows(title: str) -> dict[str, str]:
    lines = (line.strip("| ") for line in section(title).splitlines() if line.startswith("| "))
    return {first: rest for first, _, rest in (line.partition(" | ") for line in lines)}


def test_every_path_leads_somewhere() -> None:
    paths = PATH.findall(PAGE)
    assert len(paths) > 100
    assert [path for path in paths if path not in {"case.yaml", "local/"} and place(path) is None] == []


def code_of(path: Path) -> int:
    """Count the lines that are neither blank nor a comment nor a docstring: explanations cost a reader nothing."""
    text = path.read_text()
    docstrings = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in docstrings and not re.match(r"\s*(#|$)", line) for number, line in lines)


def test_the_spine_can_be_read_in_an_hour() -> None:
    spine = [place(path) or ROOT for path in re.findall(r"^\d+\. `([^`]+)`", section("The spine"), re.MULTILINE)]
    assert 10 <= len(spine) <= 15
    assert sum(map(code_of, spine)) <= MOST_CODE


def test_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""About it.\n\nMore.\n"""\n\n# why\nTEN = 10  # counts\n"""Ten."""\nTEXT = """\ncounts\n"""\n')
    assert code_of(path) == 4


def test_the_layers_are_those_that_lint_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for each in contracts[1:] if each["type"] == "layers" for layer in each["layers"]]
    held = [[name.removeprefix("gpu_casebook.").replace(".", "/") for name in names] for names in layers]
    listed = [re.findall(r"`([\w/]+?)(?:/|\.py)`", first) for first in rows("Layers") if first.startswith("`")]
    assert [sorted(names) for names in listed] == [sorted(names) for names in held]


@pytest.mark.parametrize("package", ["failure_signature", "gpu_casebook", "casebook_workbench"])
def test_every_package_and_module_at_the_top_is_on_the_page(package: str) -> None:
    prefix = "" if package == "gpu_casebook" else f"{package}/"
    named = {path.removeprefix(prefix).split("/")[0] for path in PATH.findall(section("Layers")) if prefix in path}
    there = {
        path.name
        for path in (ROOT / "runner" / package).iterdir()
        if path.name not in {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"}
    }
    assert there == named & there


def test_the_glossary_is_short_and_no_noun_stands_twice() -> None:
    nouns = [noun.strip() for first in rows("Glossary") if first != "noun" for noun in first.split(",")]
    assert len(nouns) == len(set(nouns))
    assert 30 <= len(nouns) <= MOST_NOUNS


MARKS = {
    "a kind of failure": r"\bFailure\.[A-Z]|(?i:launch[-_]error)",
    "a verdict": r"\bVerdict\.(?!CONFIRMED\b)[A-Z]|(?i:wrong[-_]failure)",  # who knows confirmed alone takes any other
    "an engine": r"\bisinstance\(.*PodmanClient|\bENGINES\b|[\"`]charliecloud[\"`]",
    "the layout of a case's page": r"^runner/.*/report/templates/case\w*\.md\.j2$|\"case_\w+\.md\.j2\"",
    "a CUDA error name": r"cudaError[A-Z]|(?:CUBLAS|CUDNN)_STATUS",
    "the number of trials": r"\bTRIALS\b|\bMORE\b",
    "an image": r"\"cuda13\"",
    "an exit status": r"\b14\b.*(?i:skip)|(?i:skip\w*)\b.*\b14\b",
    "a probe": r"(?i:launch[-_]?blocking)",
    "the GitHub matrix": r"CASEBOOK_RUNNERS|--runners\b|\bMANY\b",
    "a GPU vendor": r"(?i:nvidia)|pynvml|NVRM|libcuda|compute_capability|CUDA_VISIBLE",
    "a verb": r'name="run-merge"|"run-merge"',
    "an option of a run": r"--at-once\b|--no-probes\b",
}
"""What gives a file away that the change in question may have to touch: its path, or a line of it.

A type, or a word in each of its spellings: one member of an enum stands in few of the files that tell them apart.
"""


@pytest.mark.parametrize("what", list(MARKS))
def test_a_newcomer_finds_every_file_that_a_change_touches(what: str) -> None:
    named = [place(path) for path in PATH.findall(rows("To add or change")[what])]
    wanted = [":(glob)runner/*/**", "noxfile.py", "README.md", ":(glob)docs/*.md", ".github", "cases/case.schema.json"]
    tracked = subprocess.run(["git", "ls-files", *wanted], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()]
    mark = re.compile(MARKS[what])
    found = [name for name in names if any(map(mark.search, [name, *(ROOT / name).read_text().splitlines()]))]
    assert found
    lost = [name for name in found if not any(at == ROOT / name or at in (ROOT / name).parents for at in named if at)]
    assert lost == []


def test_the_row_of_a_cases_page_has_every_module_that_writes_it() -> None:
    row = rows("To add or change")["the layout of a case's page"]
    texts = [(PACKAGE / "report" / name).read_text() for name in ("case_page.py", "variant.py")]
    modules = {name for text in texts for name in re.findall(r"^from gpu_casebook\.report\.(\w+) ", text, re.MULTILINE)}
    assert len(modules) > 3
    assert [name for name in sorted(modules) if f"`report/{name}.py`" not in row] == []
