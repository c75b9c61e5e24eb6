import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from casebook_workbench.author import new as author
from casebook_workbench.author.check import check_all
from casebook_workbench.author.new import NewCase, begin
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import BuildError, CasebookError, ManifestError, UsageError
from gpu_casebook.manifest.case import load
from tests.cli.test_cli import casebook
from tests.conftest import IMAGES, Checkout
from tests.fakes import FIXED, LOCK, REPRO, FakeEngine, locked

SCRIPT = '"""A sum loses small terms."""\nimport packaging\n\nprint(f"rel_err={vars(packaging).get(0, 0.5)}")\n'


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    (checkout.root / "cases").mkdir()
    (checkout.root / "bug.py").write_text(SCRIPT)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setattr(author, "lock_text", lambda *_, **__: LOCK)
    return checkout.root


def made(root: Path, **wanted: Any) -> tuple[Path, list[str]]:
    said: list[str] = []
    options: dict[str, Any] = {
        "id": "my-case",
        "source": root / "bug.py",
        "trial": False,
        "python": Path(sys.executable),
    }
    begun = begin(root, NewCase(**options | wanted), said.append)
    return begun.write(), [*said, *begun.notes]


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
        assert "\n```\nrel_err=0.5\n```\n" in (directory / "README.md").read_text()

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
        assert any(line.startswith("not tried: packaging==20.0 is wanted, and ") for line in said)
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
            (
                {"buggy": ["a==1"], "fixed": ["b==1"]},
                "--buggy names a and --fixed b; name the same packages in two versions",
            ),
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
        monkeypatch.setattr(author, "lock_text", lambda *_, **__: LOCK)
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
        assert "fixed: over_exact_8=1 (3 trials, 0.5 s at most)" in said
        assert "\n```\nover_exact_8=8\n```\n" in (directory / "README.md").read_text()
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
        monkeypatch.setattr(author, "lock_text", lambda requirements, *_, **__: f"# {' '.join(requirements)}\n{LOCK}")
        directory, _ = made(here, trial=True, engine="venv", buggy=["packaging==24.0"], fixed=["packaging==24.1"])
        text = (directory / "case.yaml").read_text()
        assert "rel_err: '> 5e-02'" in text
        assert "rel_err: '< 1e-5'" in text
        assert [recipe.lock.splitlines()[0] for recipe in engine.recipes] == ["# packaging==24.0", "# packaging==24.1"]
        assert {path.name for path in (directory / "locks").iterdir()} == {"cpu.repro.txt", "cpu.fixed.txt"}
        assert not any("belongs to no environment" in each.what for each in check_all(here, ["my-case"]))


class TestAsItIsHere:
    """What the author's machine decides ends up in the case."""

    def test_a_script_that_ran_without_a_gpu_asks_for_none(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hardware, "gpus", list)
        (here / "bug.py").write_text("DEVICES = ['cuda', 'cpu']\nprint('rel_err=0.5')\n")
        directory, said = made(here, trial=True)
        text = (directory / "case.yaml").read_text()
        assert "image: cpu" in text
        assert "gpus" not in text
        assert "no GPU is here, and the trials need none: the case asks for none either" in said

    def test_an_interpreted_kernel_is_simulated(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hardware, "gpus", list)
        (here / "bug.py").write_text("# TRITON_INTERPRET\nD = 'cuda'\nprint('rel_err=0.5')\n")
        spec = yaml.safe_load((made(here, trial=True)[0] / "case.yaml").read_text())["environments"]["interpreter"]
        assert (spec["grade"], spec["image"]) == ("simulated", "cpu")

    def test_variables_that_the_script_reads_or_that_are_given(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = "import os\nif os.environ['MY_FLAG'] + os.getenv('GIVEN', '') == '12':\n    raise ValueError('both')\n"
        (here / "bug.py").write_text(code)
        monkeypatch.setenv("MY_FLAG", "1")
        monkeypatch.setenv("TORCH_LOGS", "all")
        directory, said = made(here, trial=True, variables=["GIVEN=2"])
        manifest = yaml.safe_load((directory / "case.yaml").read_text())
        assert manifest["environments"]["cpu"]["variables"] == {"GIVEN": "2", "MY_FLAG": "1"}
        assert manifest["repro"]["expect"]["exception"] == "ValueError"
        assert "TORCH_LOGS is set here and not kept; if it matters: --variable TORCH_LOGS=VALUE" in said

    def test_a_secret_is_not_kept(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (here / "bug.py").write_text("import os\nos.environ.get('HF_TOKEN')\nos.environ.get('HOME')\n")
        monkeypatch.setenv("HF_TOKEN", "x")
        directory, _ = made(here)
        assert "variables" not in (directory / "case.yaml").read_text()

    def test_what_was_loaded_and_no_lock_has_is_pinned_too(self, here: Path) -> None:
        (here / "bug.py").write_text("__import__('yaml')\nprint('rel_err=0.5')\n")
        directory, said = made(here, trial=True)
        assert f"requirements: [pyyaml=={yaml.__version__}]" in (directory / "case.yaml").read_text()
        assert f"loaded by what the script imports, and so pinned too: pyyaml=={yaml.__version__}" in said

    def test_what_a_locked_trial_lacks_is_pinned_and_tried_again(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lacks = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'yaml'\n"
        engine = FakeEngine({"repro.py": [*[replace(REPRO, exit_status=1, stdout="", stderr=lacks)] * 3, REPRO]})
        monkeypatch.setattr(choosing, "choose", lambda *_: engine)
        directory, said = made(here, trial=True, engine="venv")
        assert f"pyyaml=={yaml.__version__}" in (directory / "case.yaml").read_text()
        assert f"imported at run time, and so pinned too: pyyaml=={yaml.__version__}" in said
        assert len(engine.recipes) == 2

    def test_what_stays_on_the_disk_is_told_with_what_removes_it(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Keeping(FakeEngine):
            storage = Path("/cache")

        monkeypatch.setattr(choosing, "choose", lambda *_: Keeping({"repro.py": [REPRO]}))
        _, said = made(here, trial=True, engine="venv")
        assert (
            "environments stay in /cache for later runs; `nox -s clean -- --unused` removes those that no case uses"
        ) in said

    def test_pins_that_can_not_live_together_are_one_line_and_nothing_is_written(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> str:
            raise BuildError("the requirements can't be locked: a==1 and b==2 are unsatisfiable")

        monkeypatch.setattr(author, "lock_text", refuse)
        with pytest.raises(BuildError, match="unsatisfiable; choose other versions with --require NAME==VERSION"):
            made(here, trial=True)
        assert list((here / "cases").iterdir()) == []

    def test_without_the_index_it_is_tried_and_not_locked(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable(*_: object, **__: object) -> str:
            raise BuildError("the package index can't be reached, so nothing was locked: no route")

        monkeypatch.setattr(author, "lock_text", unreachable)
        directory, said = made(here, trial=True)
        assert "rel_err: '> 5e-02'" in (directory / "case.yaml").read_text()
        assert any(line.startswith("not locked: the package index can't be reached") for line in said)
        assert not (directory / "locks").exists()

    def test_a_required_version_goes_before_the_installed_one(self, here: Path) -> None:
        directory, said = made(here, trial=True, require=["packaging==24.0"])
        assert "requirements: [packaging==24.0]" in (directory / "case.yaml").read_text()
        assert any(line.startswith("not tried: packaging==24.0 is wanted, and ") for line in said)

    def test_three_trials_and_more_where_they_differ(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        passed = replace(REPRO, stdout="rel_err=0\n")
        for ends, count in (([REPRO], 3), ([REPRO, passed, REPRO], 12)):
            engine = FakeEngine({"repro.py": ends})
            monkeypatch.setattr(choosing, "choose", lambda *_, engine=engine: engine)
            made(here, id=f"case-{count}", trial=True, engine="venv")
            assert len(engine.requests) == count


class TestFixedFrom:
    def test_both_sides_are_tried_and_bounded(self, here: Path) -> None:
        (here / "good.py").write_text(SCRIPT.replace("0.5", "1e-7").replace("loses", "keeps"))
        directory, said = made(here, trial=True, fixed_source=here / "good.py")
        manifest = yaml.safe_load((directory / "case.yaml").read_text())
        assert manifest["repro"]["expect"] == {"figures": {"rel_err": "> 5e-02"}}
        assert manifest["fixed"]["expect"] == {"figures": {"rel_err": "< 1e-5"}}
        assert "1e-7" in (directory / "fixed.py").read_text()
        assert "TODO" not in (directory / "fixed.py").read_text()
        assert any(line.startswith("fixed: rel_err=1e-07 (3 trials") for line in said)
        assert "| `fixed.py` | rel_err=1e-07 |" in (directory / "README.md").read_text()

    def test_a_release_case_has_one_script(self, here: Path) -> None:
        with pytest.raises(UsageError, match="--fixed-from is another script, and a release case has one"):
            made(here, fixed_source=here / "bug.py", buggy=["a==1"], fixed=["a==2"])


class TestAgain:
    def test_what_is_not_committed_is_replaced(self, here: Path) -> None:
        made(here)
        directory, _ = made(here, again=True, issue="o/n#1")
        assert "o/n" in (directory / "case.yaml").read_text()

    def test_what_is_committed_is_not(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory, _ = made(here)
        before = (directory / "case.yaml").read_text()
        monkeypatch.setattr(author, "git", lambda *words: "cases/my-case/case.yaml\n" if "ls-files" in words else None)
        with pytest.raises(UsageError, match="is committed, and --again replaces only what is not"):
            made(here, again=True, issue="o/n#1")
        assert (directory / "case.yaml").read_text() == before


class TestAdd:
    WORDS = ("--why", "It is.", "--fix", "It is not.", "--yours", "It looks so.", "--title", "A sum is off")
    SOURCES = ("--from", "bug.py", "--fixed-from", "good.py", "--require", "numpy==1.26.4", "--issue", "numpy/numpy#1")

    @pytest.fixture(autouse=True)
    def engine(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        good, bad = [replace(FIXED, stdout="rel_err=1e-7\n")], [REPRO]
        engine = FakeEngine({"repro.py": bad * 6 + good, "fixed.py": good * 7 + bad})
        monkeypatch.setattr(choosing, "choose", lambda *_: engine)
        monkeypatch.setattr(author, "lock_text", locked)
        monkeypatch.setattr(hardware, "gpus", list)
        (here / "bug.py").write_text("import numpy\nmean = numpy.mean([1, 2])\nprint(f'rel_err={mean - 2}')\n")
        (here / "good.py").write_text("import numpy\nmean = numpy.mean([1, 3])\nprint(f'rel_err={mean - 2}')\n")

    def test_with_all_answers_given_it_asks_nothing_and_the_review_is_clean(self, here: Path) -> None:
        more = ("--kind", "wrong-numbers", "--because", "It goes round it.")
        status, said = casebook("add", "my-case", *self.SOURCES, *self.WORDS, *more)
        assert said.splitlines()[-1] == "my-case: 0 errors, 0 warnings, 0 notes"
        assert status == 0
        texts = {path.name: path.read_text() for path in (here / "cases" / "my-case").iterdir() if path.is_file()}
        assert not any("TODO" in text for text in texts.values())
        assert "It is not." in texts["README.md"]
        assert "title: A sum is off\n" in texts["case.yaml"]
        assert "provenance: release-workaround\nbecause: It goes round it.\n" in texts["case.yaml"]

    def test_what_is_missing_is_one_line_where_nobody_can_be_asked(self, here: Path) -> None:
        status, said = casebook("add", "my-case", *self.SOURCES)
        assert status == 2
        assert said.splitlines()[-1].startswith("casebook: --title is missing, and nobody is here to be asked: ")
        assert list((here / "cases").iterdir()) == []

    def test_what_is_missing_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = {"The fix: a": "good.py", "The report": "numpy/numpy#1", "Why the fix": "It goes round it"}
        asked = []

        def prompt(question: str, default: str | None = None) -> str:
            asked.append(question)
            given = next((answer for begins, answer in answers.items() if question.startswith(begins)), default)
            return given if given is not None else "It is so"

        monkeypatch.setattr("typer.prompt", prompt)
        monkeypatch.setattr("casebook_workbench.author.cli.somebody", lambda: True)
        status, said = casebook("add", "my-case", "--from", "bug.py", "--require", "numpy==1.26.4")
        assert status == 0, said
        assert [each.partition(":")[0].partition(" (")[0] for each in asked] == [
            "The report",
            "The fix",
            "What fails, and when, in one line",
            "Why",
            "The fix",
            "Is it yours",
            "Why the fix is a work-around",
            "Kind of failure",
        ]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("open('data.bin')\n", "bug.py reads data.bin, which lies beside it; a trial has the script alone"),
        ("import sys\nprint(float(sys.argv[1]))\n", "bug.py reads sys.argv, and a trial gives no arguments"),
        ("from . import x\n", "imports relatively (from . import ...), and a case's script stands alone"),
        ("import beside\n", "beside is a file beside the script; a case's script stands alone"),
        (
            "print('hello')\n",
            "nothing shows the failure: let it raise, or print a line name=value. Nothing was written",
        ),
        ("import nowhere\n", "the script lacks a package here, so this trial says nothing: No module named 'nowhere'"),
        ("def f(:\n", "bug.py:1: is not Python"),
        ("x = '\\x'\n" + "y" * 70_000, "bug.py"),
        ("# /// script\n# dependencies = [\n# ///\n", "has a header that is not TOML"),
        ("name = input('who? ')\n", "asks for input, and a trial has none"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('f')\np.parse_args()\n", "wants arguments"),
    ],
)
def test_a_script_that_can_be_no_case_is_one_line_and_nothing_is_written(here: Path, source: str, line: str) -> None:
    (here / "bug.py").write_text(source)
    for name in ("data.bin", "beside.py"):
        (here / name).write_text("")
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
        (
            ["--from", "nb.ipynb"],
            "nb.ipynb: is a notebook; make a script of it: jupyter nbconvert --to script nb.ipynb",
        ),
        (["--from", "bug.py", "--variable", "A"], "--variable A: write NAME=VALUE"),
        (["--from", "bug.py", "--variable", "HOME=/x"], "--variable HOME=/x: Value error, HOME is set by the runner"),
        (["--from", "bug.py", "--require", "a"], "--require: 'a' is not pinned; write a==VERSION"),
    ],
)
def test_mistakes_in_the_command(here: Path, words: list[str], line: str) -> None:
    status, said = casebook("new", "my-case", *words)
    assert (status, line in said) == (2, True), said
    assert not (here / "cases" / "my-case").exists()


def test_an_index_that_can_not_be_reached_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise BuildError("the package index can't be reached, so nothing was locked: no route")

    monkeypatch.setattr(author, "lock_text", unreachable)
    monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({}))
    with pytest.raises(CasebookError, match="can't be reached"):
        made(here, trial=True, engine="venv")
    assert list((here / "cases").iterdir()) == []
