"""A watch with a real release from the package index: packaging has no LegacyVersion any more since 22.0."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook_workbench.releases import environments as site
from gpu_casebook import cli
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.report.watched import State, known
from tests.releases.test_bisect_real import lay_out

MANIFEST = """\
id: legacy-version
title: A version that is none is taken for one
failure: wrong-numbers
upstream: {project: pypa/packaging, status: fixed}
provenance: release
environments:
  cpu:
    image: cpu
    requirements: []
repro:
  requirements: [packaging==21.3]
  expect: {figures: {legacy: "> 0"}}
fixed:
  requirements: [packaging==22.0]
  expect: {message: checked, figures: {legacy: "== 0"}}
"""

SCRIPT = """\
import warnings

from packaging import version

warnings.simplefilter("ignore")
try:
    taken = version.parse("no version")
except version.InvalidVersion:
    taken = None
print(f"legacy={int(taken is not None)}")
print("checked")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = lay_out(tmp_path)
    script.with_name("case.yaml").write_text(MANIFEST)
    for name in ("repro.py", "fixed.py"):
        script.with_name(name).write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(site, "_locks", lambda: tmp_path / "steps")
    monkeypatch.setattr(VenvEngine, "_passing", tmp_path / "steps")
    return tmp_path


def test_what_was_fixed_since_is_found_with_its_first_fixed_release(here: Path) -> None:
    words = ["watch", "legacy-version", "--engine", "venv", "--bisect"]
    result = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    seen = known(here / "reports", "legacy-version").latest("cpu")
    assert seen, result.output
    assert (seen.state, seen.fix, seen.first_fixed) == (State.FIXED, True, ["22.0"]), result.output
    assert seen.moved == ["packaging"]
    assert int(seen.versions["packaging"].partition(".")[0]) > 22
    assert "| legacy-version | `cpu` | packaging" in (here / "reports" / "README.md").read_text()
    assert (here / "reports" / "bisect" / "legacy-version.packaging.md").is_file()
    assert [path.name for path in (here / "steps").iterdir()] == ["legacy-version.lock"]
