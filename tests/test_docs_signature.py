"""The examples of docs/signature.md run, and do what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKS = re.findall(r"(?s)```python\n(.*?)```", (Path(__file__).parents[1] / "docs" / "signature.md").read_text())
FAILS = "raise ValueError('sizes differ by 2')"


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example under the name in its first line, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        name = re.match(r"# (\S+\.py)\n", block)
        Path(name[1] if name else "first.py").write_text(block)


def run(*words: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_first_example() -> None:
    assert len(BLOCKS) == 4
    assert run("first.py") == (0, "")


@pytest.mark.parametrize(("script", "status"), [(FAILS, 0), ("raise ValueError('empty')", 1), ("print('fine')", 1)])
def test_the_predicate(script: str, status: int) -> None:
    Path("reduced.py").write_text(script)
    assert run("interesting.py") == (status, "")


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("out of resource: shared memory, Required: 180224\nerror: exit status 1\n", "out of shared memory"),
        ("RuntimeError: CUDA error: unspecified launch failure\n", "launch failure"),
        ("OSError: [Errno 28] No space left on device\n", "the machine: "),
        ("AssertionError\n", "not known"),
    ],
)
def test_the_triage(log: str, told: str) -> None:
    Path("log.txt").write_text(log)
    status, printed = run("triage.py", "log.txt")
    assert (status, printed.startswith(told)) == (0, True), printed


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("print('rel_err=1e-7')", "1 passed"),
        ("print('rel_err=0.5')", "ran to its end, rel_err=0.5"),
        ("print('fine')", "ran to its end, but did not print rel_err"),
        (FAILS, "ValueError: sizes differ by 2"),
    ],
)
def test_the_assertion(script: str, line: str) -> None:
    Path("repro.py").write_text(script)
    status, printed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rel_err.py")
    assert ((status == 0) == (line == "1 passed"), line in printed) == (True, True), printed
