import json
from pathlib import Path

import pytest

from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from tests.cli.test_cli import casebook
from tests.conftest import MANIFEST, Checkout
from tests.conftest import write_locks as lock
from tests.fakes import FIXED, REPRO, FakeEngine

README = """\
# A sum
## What users saw
The loss goes up.

## Why
Eight bits hold no small terms. They are lost. A third sentence.

## Is your failure this one?
It is, where the dtype is bfloat16.
"""


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two cases, as the working directory, on a machine without a GPU."""
    directory = checkout.write().parent
    lock(directory)
    (directory / "README.md").write_text(README)
    other = MANIFEST.replace("id: tiny", "id: other").replace("owner/name", "someone/else")
    checkout.write(other.replace("status: fixed", "status: open").replace("wrong-numbers", "race"), name="other")
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    return checkout.root


@pytest.fixture
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of somebody's own, which has one case and no images."""
    own = Checkout(tmp_path_factory.mktemp("private"))
    own.write(MANIFEST.replace("id: tiny", "id: mine").replace("A sum", "My sum"), name="mine")
    return own.root


def ids(said: str) -> list[str]:
    return [line.split()[0] for line in said.splitlines()]


@pytest.mark.usefixtures("here")
def test_list_has_a_line_for_each_case() -> None:
    status, said = casebook("list")
    assert (status, said.splitlines()) == (
        0,
        [
            "other  race           someone/else  open   current, interpreter  A sum in bfloat16 loses its small terms",
            "tiny   wrong-numbers  owner/name    fixed  current, interpreter  A sum in bfloat16 loses its small terms",
        ],
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t*"], ["tiny"]),
        (["--failure", "race"], ["other"]),
        (["--project", "someone/*"], ["other"]),
        (["--status", "fixed"], ["tiny"]),
        (["--grade", "simulated"], ["other", "tiny"]),
    ],
)
def test_list_is_filtered_as_a_run_of_the_corpus(words: list[str], expected: list[str]) -> None:
    status, said = casebook("list", *words)
    assert (status, ids(said)) == (0, expected)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["list", "nothing"], "casebook: no case is called 'nothing' (there are: other, tiny)"),
        (["list", "tiny", "--status", "open"], "casebook: --status open: no case that is selected"),
        (["show", "tinny"], "casebook: no case 'tinny'; did you mean tiny?"),
        (
            ["list", "--corpus", "nowhere"],
            "casebook: --corpus nowhere: no cases/ in there; name the directory",
        ),
    ],
)
def test_what_is_not_there_is_one_clear_line(words: list[str], line: str) -> None:
    status, said = casebook(*words)
    assert (status, len(said.splitlines())) == (2, 1)
    assert said.startswith(line)


def test_a_broken_manifest_hides_no_other_case(here: Path) -> None:
    (here / "cases" / "other" / "case.yaml").write_text("id: other\n")
    status, said = casebook("list")
    assert status == 1
    assert ids(said)[0] == "tiny"
    assert "casebook: cases/other/case.yaml:1" in said


def test_list_and_show_as_json(here: Path) -> None:
    (row,) = json.loads(casebook("list", "tiny", "--environment", "current", "--json")[1])
    assert (row["id"], row["environments"]) == ("tiny", ["current"])
    shown = json.loads(casebook("show", "tiny", "--json")[1])
    assert shown["files"][1] == str(here / "cases" / "tiny" / "repro.py")
    assert [each["name"] for each in shown["environments"]] == ["current", "interpreter"]


def test_show_tells_the_story_and_how_to_run_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert casebook("show", "tiny")[1].endswith("Evidence\n  none yet\n")
    monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}))
    assert casebook("case", "tiny")[0] == 0
    status, said = casebook("show", "tiny")
    assert status == 0
    for line in (
        "tiny: A sum in bfloat16 loses its small terms",
        "  wrong-numbers in owner/name, fixed upstream. No code of owner/name ran",
        "  The loss goes up.",
        "  Eight bits hold no small terms. They are lost.\n",
        "  It is, where the dtype is bfloat16.",
        "  current: 1 GPU >=7.0,<10.0, hardware; numpy==2.2.6",
        "  interpreter: CPU, simulated; numpy==1.26.4\n    fails with exit status: 0; figure rel_err: > 1e-2",
        f"  {here}/cases/tiny/fixed.py",
        "  nox -s case-tiny  # run both scripts and judge them",
        "  confirmed: interpreter on CPU, venv, packages ",
        "    repro as expected in 3 of 3 runs, fixed in 4 of 4; ",
    ):
        assert line in said


@pytest.mark.usefixtures("here")
class TestPrivateCorpus:
    """A corpus of a user's own stands beside the public one, and uses its images."""

    def test_list_has_both(self, private: Path) -> None:
        status, said = casebook("list", "--corpus", str(private))
        assert (status, ids(said)) == (0, ["mine", "other", "tiny"])
        assert ids(casebook("list", "mine", "--corpus", str(private))[1]) == ["mine"]

    def test_show_and_case_find_either(self, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lock(private / "cases" / "mine")
        monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}))
        for case, reports in (("mine", private / "local"), ("tiny", Path("local"))):
            assert casebook("show", case, "--corpus", str(private))[0] == 0
            assert casebook("case", case, "--corpus", str(private))[0] == 0
            assert (reports / f"{case}.md").is_file()

    def test_match_looks_in_both(self, private: Path) -> None:
        said = casebook("match", "my sum in bfloat16 loses small terms", "--corpus", str(private))[1]
        assert said.startswith("1. mine")
        assert f"read {private}/cases/mine/README.md" in said
        said = casebook("match", "eight bits hold no terms", "--corpus", str(private))[1]
        assert said.startswith("1. tiny")
        assert "read cases/tiny/README.md" in said

    def test_check_and_corpus_are_of_it_alone(self, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        status, said = casebook("check", "--corpus", str(private))
        assert status == 3
        assert "cases/mine/" in said
        assert "tiny" not in said
        status, said = casebook("corpus", "tiny", "--corpus", str(private))
        assert (status, said.splitlines()[-1]) == (2, "casebook: no case is called 'tiny' (there are: mine)")

    def test_a_variable_names_it_too(self, private: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CASEBOOK_CORPUS", str(private))
        assert ids(casebook("list")[1]) == ["mine", "other", "tiny"]
