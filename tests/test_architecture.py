"""ARCHITECTURE.md is true: its paths exist, its layers are those that lint holds, and its lists are complete."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "runner" / "gpu_casebook"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PATH = re.compile(r"`((?:\.?[\w-]+/)*[\w.-]+(?:/|\.py|\.md|\.yml|\.toml|\.tsv|\.j2|\.json))`")
LEAST_NOUNS = 40


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def place(path: str) -> Path | None:
    """Where a path of the page leads; guest scripts are also named without their folder."""
    return next((at for at in (PACKAGE / path, ROOT / path, PACKAGE / "guest" / path) if at.exists()), None)


def rows(title: str) -> dict[str, str]:
    lines = (line.strip("| ") for line in section(title).splitlines() if line.startswith("| "))
    return {first: rest for first, _, rest in (line.partition(" | ") for line in lines)}


def test_every_path_leads_somewhere() -> None:
    paths = PATH.findall(PAGE)
    assert len(paths) > 100
    assert [path for path in paths if path not in {"case.yaml", "local/"} and place(path) is None] == []


def test_the_spine_can_be_read_in_an_hour() -> None:
    spine = [PACKAGE / path for path in re.findall(r"^\d+\. `([^`]+)`", section("The spine"), re.MULTILINE)]
    assert 10 <= len(spine) <= 15
    assert sum(len(path.read_text().splitlines()) for path in spine) <= 3500


def test_the_layers_are_those_that_lint_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["type"] == "layers")
    held = [[name.removeprefix("gpu_casebook.") for name in layer.split(" | ")] for layer in contract["layers"]]
    listed = [re.findall(r"`(\w+)(?:/|\.py)`", first) for first in rows("Layers") if first.startswith("`")]
    assert [sorted(names) for names in listed] == [sorted(names) for names in held]


def test_every_package_and_module_at_the_top_is_on_the_page() -> None:
    named = {path.split("/")[0] for path in PATH.findall(section("Layers"))}
    there = {
        path.name
        for path in PACKAGE.iterdir()
        if path.name not in {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"}
    }
    assert there == named & there


def test_no_noun_stands_twice_in_the_glossary() -> None:
    nouns = [noun.strip() for first in rows("Glossary") for noun in first.split(",")]
    assert len(nouns) == len(set(nouns)) >= LEAST_NOUNS


MARKS = {
    "a kind of failure": r"launch[-_]error",
    "a verdict": r"(?i)wrong[-_]failure",
    "an engine": r"VenvEngine",
    "a CUDA error name": r"cudaErrorIllegalAddress|CUDNN_STATUS",
    "the number of trials": r"\bTRIALS\b",
    "an image": r"\"cuda13\"",
    "an exit status": r"\b14\b.*(?i:skip)|(?i:skip\w*)\b.*\b14\b",
    "a probe": r"LAUNCH_BLOCKING|LaunchBlockingProbe",
    "the GitHub matrix": r"CASEBOOK_RUNNERS|--runners\b|\bMANY\b",
    "a GPU vendor": r"pynvml|/dev/nvidia|NVRM|compute_capability|CUDA_VISIBLE",
    "a verb": r'name="run-merge"|"run-merge"',
}
"""What gives a file away that the change in question may have to touch."""


@pytest.mark.parametrize("what", list(MARKS))
def test_a_newcomer_finds_every_file_that_a_change_touches(what: str) -> None:
    named = [place(path) for path in PATH.findall(rows("To add or change")[what])]
    wanted = ["runner", "noxfile.py", "README.md", ":(glob)docs/*.md", ".github"]
    tracked = subprocess.run(["git", "ls-files", *wanted], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {ROOT / name: (ROOT / name).read_text() for name in tracked.stdout.splitlines() if (ROOT / name).is_file()}
    found = [path for path, text in texts.items() if any(map(re.compile(MARKS[what]).search, text.splitlines()))]
    assert found
    lost = [path for path in found if not any(at == path or at in path.parents for at in named if at)]
    assert [path.relative_to(ROOT).as_posix() for path in lost] == []
