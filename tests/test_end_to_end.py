"""The main job for real: `casebook case`, with the real engines and the real package."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from casebook_workbench.upkeep.rebuild import render_all
from failure_signature.trials import Verdict
from gpu_casebook.evidence import Evidence

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def start(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "gpu_casebook", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def casebook(*words: str) -> tuple[int, str]:
    process = start(*words)
    said, _ = process.communicate()
    return process.returncode, said


@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker), "venv"])
def test_the_bug_reproduces_and_the_fix_holds(engine: str, tmp_path: Path) -> None:
    words = ["case", "rwkv6-backward", "--environment", "front-end", "--engine", engine]
    status, said = casebook(*words, "--reports", str(tmp_path))
    assert status == 0, said
    evidence = Evidence.read(next(tmp_path.glob("evidence/rwkv6-backward/*.json")))
    assert evidence.verdict is Verdict.CONFIRMED
    assert evidence.environment.exact, evidence.environment.drift
    assert evidence.engine.name == engine
    assert (evidence.engine.image is not None) == (engine == "docker")
    page = (tmp_path / "rwkv6-backward.md").read_text()
    assert "expanded size of the tensor (64) must match the existing size (16)" in page
    (tmp_path / "rwkv6-backward.md").unlink()
    render_all(tmp_path)
    assert (tmp_path / "rwkv6-backward.md").read_text() == page


def test_nothing_private_is_in_the_evidence(tmp_path: Path) -> None:
    words = ["case", "rwkv6-backward", "--environment", "front-end", "--engine", "venv"]
    casebook(*words, "--reports", str(tmp_path))
    text = next(tmp_path.glob("evidence/*/*.json")).read_text()
    for private in (str(Path.home()), str(ROOT), str(tmp_path)):
        assert private not in text


def test_ctrl_c_ends_a_run_cleanly(tmp_path: Path) -> None:
    words = ["case", "rwkv6-backward", "--environment", "front-end", "--engine", "venv", "--trials", "50"]
    process = start(*words, "--reports", str(tmp_path))
    assert process.stdout is not None
    for line in process.stdout:
        if "trial 1:" in line:
            break
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; nothing is left running" in said
    assert time.monotonic() - begun < 30  # the promise is 5 s; a loaded machine gets more
    assert not list(tmp_path.rglob("*.json"))
