"""A bisection over real releases from the package index: small ones, of one pure package.

packaging 22.0 dropped LegacyVersion: what is no version is an error from there on.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook_workbench.releases import environments as site
from casebook_workbench.releases.records import Bisection, Call, bisections
from gpu_casebook import cli
from gpu_casebook.engines.venv.engine import VenvEngine

ROOT = Path(__file__).parents[2]

MANIFEST = """\
id: legacy-version
title: A version that is none is an error
failure: exception
upstream: {project: pypa/packaging, status: open}
provenance: distilled
environments:
  cpu:
    image: cpu
    requirements: [packaging==23.0]
repro:
  expect: {exception: packaging.version.InvalidVersion, message: 'Invalid version'}
fixed:
  expect: {message: parsed}
"""

SCRIPT = """\
import warnings

from packaging.version import parse

warnings.simplefilter("ignore")
print("parsed", type(parse("{}")).__name__)
"""


def lay_out(root: Path) -> Path:
    """A checkout with that case alone; where its repro.py is."""
    (root / "images" / "cpu").mkdir(parents=True)
    (root / "images" / "cpu" / "Dockerfile").touch()
    case = root / "cases" / "legacy-version"
    case.mkdir(parents=True)
    (case / "case.yaml").write_text(MANIFEST)
    (case / "repro.py").write_text(SCRIPT.format("no version"))
    (case / "fixed.py").write_text(SCRIPT.format("1.0"))
    return case / "repro.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(site, "_locks", lambda: tmp_path / "steps")
    monkeypatch.setattr(VenvEngine, "_passing", tmp_path / "steps")
    return tmp_path


def casebook(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def read(here: Path) -> Bisection:
    [found] = bisections(here / "local", "legacy-version")
    return found


WORDS = ("bisect", "legacy-version", "--package", "packaging", "--engine", "venv")
ENDS = ("--good", "21.0", "--bad", "23.1")


def test_the_release_that_brought_a_change_is_found_among_real_ones(here: Path) -> None:
    status, said = casebook(*WORDS, *ENDS)
    assert status == 0, said
    found = read(here)
    assert found.first == ["22.0"], said
    assert {"21.0", "21.3", "22.0", "23.0", "23.1"} <= set(found.versions)
    assert (found.calls["22.0"], found.calls["21.3"]) == (Call.BAD, Call.GOOD)
    assert {step.why for step in found.steps if step.call is Call.GOOD} == {"ran to its end"}
    assert found.doubt is not None
    assert found.doubt <= 0.01
    assert [path.name for path in (here / "steps").iterdir()] == ["legacy-version.lock"]


def test_a_search_that_was_killed_goes_on_and_what_it_left_is_swept(here: Path) -> None:
    command = [sys.executable, "-m", "gpu_casebook", *WORDS, *ENDS]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(here / "cache")}
    unfinished = here / "local" / "bisect" / "legacy-version.packaging.unfinished.json"
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as killed:
        _wait(lambda: unfinished.is_file() and len(Bisection.read(unfinished).steps) > 1, killed)
        killed.kill()
    left = Bisection.read(unfinished)
    assert list((here / "cache" / "casebook" / "steps").glob("*/envs/*"))
    done = subprocess.run([*command, "--resume"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = read(here)
    assert found.first == ["22.0"]
    assert found.steps[0] == left.steps[0]
    assert f"packaging {left.steps[0].version} (measuring" not in done.stdout
    assert not list((here / "cache" / "casebook" / "steps").glob("*/envs"))


def _wait(until: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not until():
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < end, "it did not get that far"
        time.sleep(0.05)
