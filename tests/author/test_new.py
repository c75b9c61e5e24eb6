import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_casebook.author import new as author
from gpu_casebook.author.check import check_all
from gpu_casebook.author.new import NewCase, new
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import BuildError, CasebookError, ManifestError, UsageError
from gpu_casebook.manifest.case import load
from tests.cli.test_cli import casebook
from tests.conftest import IMAGES, Checkout
from tests.fakes import FIXED, LOCK, REPRO, FakeEngine

SCRIPT = '"""A sum loses small terms."""\nimport packaging\n\nprint(f"rel_err={vars(packaging).get(0, 0.5)}")\n'


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    (checkout.root / "cases").mkdir()
    (checkout.root / "bug.py").write_text(SCRIPT)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    return checkout.root


def made(root: Path, **wanted: Any) -> tuple[Path, list[str]]:
    said: list[str] = []
    options: dict[str, Any] = {
        "id": "my-case",
        "source": root / "bug.py",
        "trial": False,
        "python": Path(sys.executable),
    }
    directory, notes = new(root, NewCase(**options | wanted), said.append)
    return directory, [*said, *notes]


class TestWritten:
    def test_the_files_of_a_case(self, here: Path) -> None:
        directory, _ = made(here)
        assert directory == here / "cases" / "my-case"
        assert {path.name for path in directory.iterdir()} == {"case.yaml", "repro.py", "fixed.py", "README.md"}

    def test_requirements_are_those_of_the_active_environment(self, here: Path) -> None:
        directory, _ = made(here)
        import packaging

        assert f"requirements: [packaging=={packaging.__version__}]" in (directory / "case.yaml").read_text()
        assert f'["packaging=={packaging.__version__}"]' in (directory / "repro.py").read_text()

    def test_from_nothing(self, here: Path) -> None:
        status, said = casebook("new", "my-case")
        assert status == 0, said
        assert casebook("check")[0] == 3

    def test_what_is_left_is_counted_and_the_first_of_it_named(self, here: Path) -> None:
        _, said = casebook("new", "my-case", "--from", "bug.py", "--no-trial")
        named = [line for line in said.splitlines() if "still to do" in line]
        left = [line for line in casebook("check", "--static", "my-case")[1].splitlines() if "still to do" in line]
        assert [line.strip() for line in named] == left[:1]
        assert f"{len(left)} left to fill in or confirm" in said

    def test_a_trial_is_proposed(self, here: Path) -> None:
        directory, said = made(here, trial=True)
        assert "    figures:\n      rel_err: '> 5e-02'\n" in (directory / "case.yaml").read_text()
        assert "rel_err: '< 1e-5'" in (directory / "case.yaml").read_text()
        assert any(line.startswith("repro: rel_err=0.5 (") for line in said)
        assert "\n    rel_err=0.5\n" in (directory / "README.md").read_text()

    def test_blanks_are_named_one_by_one_until_they_are_gone(self, here: Path) -> None:
        directory, _ = made(here, issue="o/n#1")
        left = [line for line in casebook("check", "--static", "my-case")[1].splitlines() if "still to do" in line]
        assert left
        for path in directory.iterdir():
            text = path.read_text()
            while "TODO(case)" in text:
                text = text.replace("TODO(case)", "done", 1)
                path.write_text(text)
                now = [
                    line for line in casebook("check", "--static", "my-case")[1].splitlines() if "still to do" in line
                ]
                assert len(now) == len(left) - 1
                left = now
        assert left == []

    def test_check_has_nothing_else_to_say_but_for_locks(self, here: Path) -> None:
        made(here, issue="o/n#1")
        said = [line for line in casebook("check", "--static", "my-case")[1].splitlines() if line.startswith("cases/")]
        assert said
        assert [line for line in said if "still to do" not in line and "/locks/" not in line] == []

    def test_a_script_as_windows_saves_it(self, here: Path) -> None:
        (here / "bug.py").write_bytes(b"\xef\xbb\xbf" + SCRIPT.replace("\n", "\r\n").encode())
        directory, _ = made(here)
        text = (directory / "repro.py").read_bytes().decode()
        assert "\r" not in text
        assert "\ufeff" not in text

    def test_gpus_and_image_are_guessed(self, here: Path) -> None:
        (here / "bug.py").write_text("import torch\ntorch.zeros(1, device='cuda')\n")
        directory, _ = made(here)
        text = (directory / "case.yaml").read_text()
        assert "image: cuda13" in text
        assert "gpus: 1" in text

    def test_a_script_that_takes_a_gpu_if_there_is_one_asks_for_none(self, here: Path) -> None:
        (here / "bug.py").write_text("import torch\nd = 'cuda' if torch.cuda.is_available() else 'cpu'\n")
        directory, said = made(here)
        assert "gpus" not in (directory / "case.yaml").read_text()
        assert any("if the bug needs it: gpus: 1" in line for line in said)


class TestRelease:
    def test_each_variant_has_its_own_version(self, here: Path) -> None:
        directory, _ = made(here, buggy=["packaging==24.0"], fixed=["packaging==24.1"])
        assert '["packaging==24.0"]' in (directory / "repro.py").read_text()
        assert '["packaging==24.1"]' in (directory / "fixed.py").read_text()
        assert "requirements: []" in (directory / "case.yaml").read_text()

    def test_another_version_than_the_buggy_one_is_not_tried(self, here: Path) -> None:
        directory, said = made(here, trial=True, buggy=["packaging==20.0"], fixed=["packaging==20.1"])
        assert any(line.startswith("not tried: packaging ") for line in said)
        assert "rel_err" not in (directory / "case.yaml").read_text()

    def test_the_buggy_one_is_tried_where_it_is_installed(self, here: Path) -> None:
        import packaging

        pins = [f"packaging=={packaging.__version__}"]
        directory, said = made(here, trial=True, buggy=pins, fixed=["packaging==999"])
        assert "rel_err: '> 5e-02'" in (directory / "case.yaml").read_text()
        assert "fixed: not tried, as it is not what is installed here; --engine venv tries both" in said

    def test_it_is_hinted_at_where_the_script_runs_the_package_of_the_report(self, here: Path) -> None:
        _, said = made(here, issue="pypa/packaging#1")
        assert any("--fixed packaging==VERSION" in line for line in said)

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ({"buggy": ["a==1"]}, "--buggy and --fixed belong together"),
            ({"buggy": ["a==1"], "fixed": ["a==1"]}, "are the same; a release case needs two versions"),
            ({"buggy": ["a"], "fixed": ["a==2"]}, "--buggy: 'a' is not pinned; write a==VERSION"),
        ],
    )
    def test_mistakes(self, here: Path, options: dict[str, Any], line: str) -> None:
        with pytest.raises(UsageError, match=line):
            made(here, **options)

    def test_what_the_fixed_release_printed_is_proposed_and_tells_what_fails(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        printed = {
            "repro.py": "over_exact_1=1.0\nover_exact_8=8.0\n",
            "fixed.py": "over_exact_1=1.0\nover_exact_8=1.0\n",
        }
        engine = FakeEngine({name: [replace(REPRO, stdout=stdout)] for name, stdout in printed.items()})
        monkeypatch.setattr(choosing, "choose", lambda *_: engine)
        monkeypatch.setattr(author, "lock_text", lambda *_: LOCK)
        directory, said = made(here, trial=True, engine="venv", buggy=["packaging==24.0"], fixed=["packaging==24.1"])
        data = yaml.safe_load((directory / "case.yaml").read_text())
        assert data["repro"]["expect"]["figures"] == {
            "over_exact_1": "> 0.99, < 1.01",
            "over_exact_8": "> 7.92, < 8.08",
        }
        assert data["fixed"]["expect"]["figures"] == {
            "over_exact_1": "> 0.99, < 1.01",
            "over_exact_8": "> 0.99, < 1.01",
        }
        assert "fixed: over_exact_8=1 (0.5 s)" in said
        assert "\n    over_exact_8=8\n" in (directory / "README.md").read_text()
        assert not any("fixed: not tried" in line for line in said)

    def test_where_nothing_is_known_of_the_fix_its_figures_are_placeholders(self, here: Path) -> None:
        (here / "bug.py").write_text("print('ratio=8.0')\n")
        directory, _ = made(here, trial=True)
        manifest = yaml.safe_load((directory / "case.yaml").read_text())
        assert manifest["fixed"]["expect"] == {"figures": {"ratio": "!= 8"}}
        with pytest.raises(ManifestError, match="proves nothing"):
            load(directory / "case.yaml", IMAGES)

    def test_both_are_tried_in_locked_environments(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
        monkeypatch.setattr(choosing, "choose", lambda *_: engine)
        monkeypatch.setattr(author, "lock_text", lambda requirements, *_: f"# {' '.join(requirements)}\n{LOCK}")
        directory, _ = made(here, trial=True, engine="venv", buggy=["packaging==24.0"], fixed=["packaging==24.1"])
        text = (directory / "case.yaml").read_text()
        assert "rel_err: '> 5e-02'" in text
        assert "rel_err: '< 1e-5'" in text
        assert [recipe.lock.splitlines()[0] for recipe in engine.recipes] == ["# packaging==24.0", "# packaging==24.1"]
        assert {path.name for path in (directory / "locks").iterdir()} == {"cpu.repro.txt", "cpu.fixed.txt"}
        assert not any("belongs to no environment" in each.what for each in check_all(here, ["my-case"]))


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(:\n", "bug.py:1: is not Python"),
        ("x = '\\x'\n" + "y" * 70_000, "bug.py"),
        ("# /// script\n# dependencies = [\n# ///\n", "has a header that is not TOML"),
        ("name = input('who? ')\n", "asks for input, and a trial has none"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('f')\np.parse_args()\n", "wants arguments"),
    ],
)
def test_a_script_that_can_be_no_case_is_one_line_and_nothing_is_written(here: Path, source: str, line: str) -> None:
    (here / "bug.py").write_text(source)
    status, said = casebook("new", "my-case", "--from", "bug.py")
    assert status == 2
    assert line in said.splitlines()[-1]
    assert "Traceback" not in said
    assert list((here / "cases").iterdir()) == []


def test_a_script_that_never_ends_and_gets_on_is_one_line(here: Path) -> None:
    (here / "bug.py").write_text("while True:\n    pass\n")
    status, said = casebook("new", "my-case", "--from", "bug.py", "--timeout", "2s")
    assert (status, "still ran, and got on, after" in said) == (2, True)
    assert "--timeout" in said


def test_a_script_that_waits_for_ever_is_proposed_as_a_hang(here: Path) -> None:
    (here / "bug.py").write_text("import time\ndef wait_here():\n    time.sleep(3600)\nwait_here()\n")
    directory, _ = made(here, trial=True, timeout_s=24.0)
    assert "stack: wait_here" in (directory / "case.yaml").read_text()
    assert "failure: hang" in (directory / "case.yaml").read_text()


@pytest.mark.parametrize("name", ["Bad", "with space", "-x", "a" * 81, "../up", ""])
def test_a_bad_id(here: Path, name: str) -> None:
    with pytest.raises(UsageError, match="must consist of a-z"):
        made(here, id=name)


def test_what_is_there_is_left_alone(here: Path) -> None:
    directory, _ = made(here)
    before = (directory / "case.yaml").read_text()
    with pytest.raises(UsageError, match="cases/my-case is there already"):
        made(here)
    assert (directory / "case.yaml").read_text() == before


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--from", "gone.py"], "gone.py:1: is missing"),
        (["--from", "cases"], "cases:1: is not a file"),
        (["--issue", "https://example.org/x/1"], "not a report on GitHub"),
        (["--from", "bug.py", "--python", "gone"], "--python gone: there is no such file"),
        (["--from", "bug.py", "--timeout", "soon"], "--timeout soon"),
    ],
)
def test_mistakes_in_the_command(here: Path, words: list[str], line: str) -> None:
    status, said = casebook("new", "my-case", *words)
    assert (status, line in said) == (2, True), said
    assert not (here / "cases" / "my-case").exists()


def test_an_index_that_can_not_be_reached_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> str:
        raise BuildError("the package index can't be reached, so nothing was locked: no route")

    monkeypatch.setattr(author, "lock_text", unreachable)
    monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({}))
    with pytest.raises(CasebookError, match="can't be reached"):
        made(here, trial=True, engine="venv")
    assert list((here / "cases").iterdir()) == []
