"""Verbs are found by entry point, also where nothing is installed, and imported once they are used."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_casebook import cli, plugins
from gpu_casebook.cli.verbs import VERBS, all_verbs

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = """
import importlib.metadata, os, sys
importlib.metadata.distributions = lambda **_: iter(())   # as if nothing had been installed
sys.argv = ["casebook", *os.environ["WORDS"].split()]
from gpu_casebook.cli import main
main()
"""


def without_installation(runner: Path, words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run `casebook` from a directory of packages, with no metadata of any distribution."""
    known = {**os.environ, "PYTHONPATH": str(runner), "WORDS": words}
    return subprocess.run(
        [sys.executable, "-c", NOT_INSTALLED], cwd=cwd, env=known, capture_output=True, text=True, check=False
    )


def test_every_verb_is_listed_and_its_module_registers_it() -> None:
    said = CliRunner().invoke(cli.app, ["--help"]).output
    for name, verb in all_verbs().items():
        assert f"\n  {name} " in said
        import_module(verb.module)
        assert CliRunner().invoke(cli.app, [name, "--help"]).exit_code == 0, name


def test_the_core_has_few_verbs_and_the_workbench_the_others() -> None:
    assert list(VERBS) == ["case", "lock", "schema", "clean"]
    assert {"corpus", "match", "add", "check", "images", "report"} < set(all_verbs())


def test_no_line_of_help_is_cut() -> None:
    lines = CliRunner().invoke(cli.app, ["--help"]).output.splitlines()
    assert [verb.line for verb in all_verbs().values() if not any(line.endswith(verb.line) for line in lines)] == []


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["case", "--help"]])
def test_help_and_case_import_nothing_of_the_workbench_but_its_table(words: list[str]) -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *sorted(n for n in sys.modules if n.startswith('casebook_'))))\n"
        f"sys.argv = ['casebook', *{words!r}]\n"
        "from gpu_casebook.cli import main\nmain()\n"
    )
    known = {**os.environ, "PYTHONPATH": str(ROOT / "runner")}
    done = subprocess.run([sys.executable, "-c", program], env=known, capture_output=True, text=True, check=True)
    loaded = done.stdout.partition("LOADED")[2].split()
    assert set(loaded) <= {"casebook_workbench", "casebook_workbench.verbs"}


@pytest.mark.parametrize("words", ["list", "check --static tokenizers-windows-lost"])
def test_verbs_of_the_workbench_work_in_a_bare_checkout(words: str) -> None:
    done = without_installation(ROOT / "runner", words, ROOT)
    assert done.returncode == 0, done.stderr
    assert "tokenizers-windows-lost" in done.stdout or "1 case checked, no problems" in done.stdout


def test_a_package_beside_this_one_adds_entry_points_without_being_installed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "runner" / "gpu_casebook", tmp_path / "runner" / "gpu_casebook", ignore=_no_bytecode)
    shutil.copytree(
        ROOT / "runner" / "failure_signature", tmp_path / "runner" / "failure_signature", ignore=_no_bytecode
    )
    third = tmp_path / "runner" / "third"
    third.mkdir()
    (third / "__init__.py").touch()
    (third / "pyproject.toml").write_text('[project.entry-points."gpu_casebook.verbs"]\nthird = "third.verbs:VERBS"\n')
    (third / "verbs.py").write_text(
        "from gpu_casebook.cli.verbs import Verb\nVERBS = {'hello': Verb('third.hello', 'Say hello.')}\n"
    )
    (third / "hello.py").write_text(
        "from gpu_casebook.cli.base import app\n@app.command()\ndef hello() -> None:\n    print('hello there')\n"
    )
    done = without_installation(tmp_path / "runner", "--help", tmp_path)
    assert "Say hello." in done.stdout, done.stderr
    assert without_installation(tmp_path / "runner", "hello", tmp_path).stdout == "hello there\n"
    assert "match" not in done.stdout


def _no_bytecode(_directory: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__"}


def test_an_entry_point_of_the_checkout_is_found_by_its_group() -> None:
    assert plugins.find("gpu_casebook.verbs")["workbench"] == "casebook_workbench.verbs:VERBS"
    assert plugins.find("gpu_casebook.nothing") == {}
    with pytest.raises(KeyError):
        plugins.load("gpu_casebook.verbs", "nobody")


@pytest.mark.parametrize("typo", ["macth", "corpsu", "csae"])
def test_the_nearest_verb_is_named(typo: str) -> None:
    said = CliRunner().invoke(cli.app, [typo]).output
    assert "Did you mean" in said
