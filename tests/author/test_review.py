import io
from pathlib import Path

import pytest

from casebook_workbench.author.complaints import SECTIONS
from casebook_workbench.author.review import Review, exchanged, near_to, review, static
from failure_signature.bounds import Bound
from failure_signature.kinds import Variant
from failure_signature.result import TrialResult
from gpu_casebook.console import Console
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import Severity
from gpu_casebook.manifest.case import find
from gpu_casebook.run.options import Options
from tests.author.test_check import write_locks
from tests.cli.test_cli import casebook
from tests.conftest import IMAGES, MANIFEST, SCRIPT, Checkout
from tests.fakes import FIXED, REPRO, FakeEngine

README = "# A sum in bfloat16 loses its small terms\n\n" + "\n".join(
    f"## {usual}\nSome words.\n" for _, usual in SECTIONS.values()
)


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    write(checkout)
    return checkout.root


def write(checkout: Checkout, manifest: str = MANIFEST) -> None:
    script = SCRIPT.replace("# ///\n", '# ///\n"""What to look for."""\n')
    path = checkout.write(manifest.replace("  status: fixed\n", "  status: fixed\n  fixed: v1.2\n"), script=script)
    (path.parent / "README.md").write_text(README)
    write_locks(checkout, path)


def reviewed(root: Path, engine: FakeEngine, **options: str) -> Review:
    return review(root, "tiny", Options(probes=False, **options), engine, Console(io.StringIO()))  # type: ignore[arg-type]


def good() -> FakeEngine:
    return FakeEngine({"repro.py": [REPRO] * 3 + [FIXED] * 3, "fixed.py": [FIXED] * 4 + [REPRO] * 4})


def test_a_good_case(here: Path) -> None:
    found = reviewed(here, good())
    assert found.problems == []
    assert found.done == ["tried in environment interpreter: confirmed", "exchanged: not-reproduced"]


def test_errors_come_first_and_nothing_is_run(here: Path) -> None:
    (here / "cases" / "tiny" / "repro.py").write_text("import gpu_casebook\n")
    engine = FakeEngine({})
    found = reviewed(here, engine)
    assert found.count(Severity.ERROR) >= 2
    assert found.done == ["not tried: the errors come first"]
    assert engine.requests == []


def test_a_case_that_is_not_confirmed_says_what_differs(here: Path) -> None:
    found = reviewed(here, FakeEngine({"repro.py": [FIXED], "fixed.py": [FIXED]}))
    told = [str(each) for each in found.problems]
    assert told[0].startswith("cases/tiny/case.yaml:24: not-reproduced in environment interpreter: ")
    assert "cases/tiny/case.yaml:24: repro.expect: figure rel_err: expected > 1e-2, saw 1e-07" in told


def test_a_fix_that_fails_is_told_of_fixed(here: Path) -> None:
    found = reviewed(here, FakeEngine({"repro.py": [REPRO], "fixed.py": [REPRO]}))
    assert any("fixed.expect: message: expected /all good/" in str(each) for each in found.problems)


def test_scripts_that_go_by_their_own_names_are_an_error(here: Path) -> None:
    found = reviewed(here, FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]}))
    (error,) = [each for each in found.problems if each.severity is Severity.ERROR]
    assert "with repro.py and fixed.py exchanged it is confirmed too" in error.what
    assert found.done[-1] == "exchanged: confirmed"


@pytest.mark.parametrize(
    ("repro", "fixed", "error"),
    [
        (
            REPRO,
            REPRO,
            "24: repro.expect: the output of fixed.py is as this expects too, so it does not tell the scripts",
        ),
        (
            FIXED,
            FIXED,
            "27: fixed.expect: the output of repro.py is as this expects too, so it does not tell the scripts",
        ),
    ],
)
def test_an_output_that_the_other_is_to_have_is_an_error_whatever_the_verdict(
    here: Path, repro: TrialResult, fixed: TrialResult, error: str
) -> None:
    found = reviewed(here, FakeEngine({"repro.py": [repro], "fixed.py": [fixed]}))
    assert any(str(each).startswith(f"cases/tiny/case.yaml:{error}") for each in found.problems)


def test_a_race_may_pass_now_and_then(checkout: Checkout, here: Path) -> None:
    write(checkout, MANIFEST.replace('{rel_err: "> 1e-2"}', '{rel_err: "> 1e-2"}\n    rate: ">= 0.5"\ntrials: 24'))
    found = reviewed(here, FakeEngine({"repro.py": [REPRO, FIXED], "fixed.py": [FIXED]}))
    assert not any("is as this expects too" in each.what for each in found.problems)


def test_the_swap_gives_each_variant_the_others_script_packages_and_locks(checkout: Checkout, tmp_path: Path) -> None:
    own = {"repro": "requirements: [trl==0.13.0]", "fixed": "requirements: [trl==0.14.0]"}
    manifest = MANIFEST.replace("provenance: distilled", "provenance: release")
    for variant, requirements in own.items():
        manifest = manifest.replace(f"\n{variant}:\n", f"\n{variant}:\n  {requirements}\n")
    write(checkout, manifest)
    case = find(checkout.root, "tiny", IMAGES)
    other = exchanged(case, tmp_path / "swap")
    for variant, opposite in ((Variant.REPRO, Variant.FIXED), (Variant.FIXED, Variant.REPRO)):
        assert other.script(variant).read_text() == case.script(opposite).read_text()
        assert other.requirements("current", variant) == case.requirements("current", opposite)
        lock, theirs = other.lock_path("current", variant), case.lock_path("current", opposite)
        assert lock.read_text() == theirs.read_text()
        assert other.expectation("current", variant) == case.expectation("current", variant)


def test_a_figure_near_its_bound_is_a_warning(here: Path) -> None:
    near = TrialResult(stdout="rel_err=0.0105\n", stderr="", duration_s=0.1, exit_status=0)
    found = reviewed(here, FakeEngine({"repro.py": [near, near, near, FIXED], "fixed.py": [FIXED]}))
    (warning,) = found.problems
    assert str(warning).startswith("cases/tiny/case.yaml:25: warning: repro.expect.figures.rel_err: 0.0105 was seen")


@pytest.mark.parametrize(
    ("bound", "value", "told"),
    [
        ("< 1e-5", 9.5e-6, [9.5e-6]),
        ("< 1e-5", 3e-7, []),
        ("> 1e-2", 0.5, []),
        ("> 0.6862, < 0.7", 0.6931, []),
        ("> 0.6862, < 0.7", 0.6995, [0.6995]),
        ("== 3", 3.0, []),
        (">= 16", 17.0, []),
    ],
)
def test_what_is_near_depends_on_the_room_that_a_bound_leaves(bound: str, value: float, told: list[float]) -> None:
    assert near_to(Bound.parse(bound), [value]) == (told[0] if told else None)


def test_a_slow_trial_is_a_warning(here: Path) -> None:
    slow = TrialResult(stdout="rel_err=0.5\n", stderr="", duration_s=75.0, exit_status=0)
    found = reviewed(here, FakeEngine({"repro.py": [slow, slow, slow, FIXED], "fixed.py": [FIXED]}))
    assert [str(each) for each in found.problems] == [
        "cases/tiny/repro.py:1: warning: a trial took 75 s; whoever looks at a bug has less patience"
    ]


def test_where_no_environment_can_run_it_is_a_note(here: Path) -> None:
    found = reviewed(here, good(), environment="current")
    (note,) = found.problems
    assert note.severity is Severity.NOTE
    assert "not tried here: current: 1 GPU is needed, and there is none" in note.what


def test_a_stale_lock_is_an_error(here: Path) -> None:
    lock = here / "cases" / "tiny" / "locks" / "interpreter.txt"
    lock.write_text(lock.read_text().replace("numpy==1.26.4", "numpy==1.26.3"))
    assert reviewed(here, good()).count(Severity.ERROR) >= 1


def test_a_manifest_that_is_none_ends_with_its_mistakes(here: Path) -> None:
    (here / "cases" / "tiny" / "case.yaml").write_text("id: tiny\n")
    case, findings = static(here, "tiny")
    assert case is None
    assert findings


def test_quoted_figures_are_compared_with_bounds_and_evidence(here: Path) -> None:
    readme = here / "cases" / "tiny" / "README.md"
    readme.write_text(f"{README}\n`rel_err=0.5`, `rel_err=1e-3`, `other_err=2`\n")
    warned = [each.what.partition(":")[0] for each in reviewed(here, good()).problems]
    assert warned == ["rel_err=1e-3", "other_err=2"]


class TestCommand:
    @pytest.fixture(autouse=True)
    def engine(self, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
        engine = good()
        monkeypatch.setattr(choosing, "choose", lambda *_: engine)
        return engine

    @pytest.mark.usefixtures("here")
    def test_naming_a_case_reviews_it(self, engine: FakeEngine) -> None:
        status, said = casebook("check", "tiny")
        assert (status, said.splitlines()[-1]) == (0, "tiny: 0 errors, 0 warnings, 0 notes")
        assert len(engine.requests) == 10

    @pytest.mark.usefixtures("here")
    def test_naming_none_runs_nothing(self, engine: FakeEngine) -> None:
        casebook("schema")
        assert casebook("check") == (0, "1 case checked, no problems\n")
        assert casebook("check", "--static", "tiny") == (0, "1 case checked, no problems\n")
        assert engine.requests == []

    def test_errors_end_it_with_the_status_of_a_wrong_manifest(self, here: Path) -> None:
        (here / "cases" / "tiny" / "README.md").unlink()
        status, said = casebook("check", "tiny")
        assert status == 3
        assert "cases/tiny/README.md:1: is missing or empty" in said

    @pytest.mark.usefixtures("here")
    def test_an_unknown_case_is_one_line(self) -> None:
        status, said = casebook("check", "tinny")
        assert (status, said) == (2, "casebook: no case 'tinny'; did you mean tiny?\n")
