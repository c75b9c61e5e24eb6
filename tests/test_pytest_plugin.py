import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from failure_signature.result import TrialResult
from gpu_casebook import console, report
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import EngineError, ManifestError
from gpu_casebook.evidence import Evidence
from gpu_casebook.manifest import case
from gpu_casebook.run import pipeline
from gpu_casebook.trial import TrialRequest
from tests.conftest import MANIFEST, PLAIN, Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
LOADED = (case, console, report, pipeline)
"""What the plugin imports when it needs it: a run in this process forgets what it was the first to import."""
PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)
HANG = "failure: wrong-numbers", "failure: hang"

TWO_GRADES = PLAIN.replace(
    "two: {image: cpu, requirements: []}", "two: {image: cpu, requirements: [], grade: simulated}"
)


@pytest.fixture
def checkout(pytester: pytest.Pytester) -> Checkout:
    """Two cases, of different kinds, on a machine without a GPU. The ini file makes it pytest's root."""
    pytester.makeini("[pytest]")
    for image in ("cpu", "cuda13"):
        (pytester.path / "images" / image).mkdir(parents=True)
        (pytester.path / "images" / image / "Dockerfile").touch()
    here = Checkout(pytester.path)
    for name in ("tiny", "other"):
        write(here, MANIFEST.replace("id: tiny", f"id: {name}").replace(*(HANG if name == "other" else ("", ""))), name)
    return here


def write(checkout: Checkout, manifest: str, name: str) -> Path:
    path = checkout.write(manifest, name=name)
    with suppress(ManifestError):
        write_locks(path.parent)
    return path


class Chosen:
    """Stands for `choose`: which engine was asked for, how often, and whether it was closed."""

    def __init__(self) -> None:
        self.engine = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
        self.asked: list[str | None] = []

    def __call__(self, name: str | None, root: Path, note: object) -> FakeEngine:
        self.asked.append(name)
        return self.engine

    def ends(self, repro: TrialResult, fixed: TrialResult) -> None:
        self.engine = FakeEngine({"repro.py": [repro], "fixed.py": [fixed]})


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Chosen:
    chosen = Chosen()
    monkeypatch.setattr(choosing, "choose", chosen)
    monkeypatch.setattr(hardware, "gpus", list)
    return chosen


@pytest.fixture
def ran(pytester: pytest.Pytester, checkout: Checkout, chosen: Chosen) -> "Run":
    return Run(pytester)


class Run:
    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester

    def __call__(self, *words: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess("--strict-markers", "-W", "error", *words)

    def collected(self, *words: str) -> list[str]:
        return [line for line in self("cases", "--collect-only", "-q", *words).outlines if "::" in line]


def test_each_case_and_environment_is_an_item(ran: Run) -> None:
    assert ran.collected() == [
        "cases/other/case.yaml::current",
        "cases/other/case.yaml::interpreter",
        "cases/tiny/case.yaml::current",
        "cases/tiny/case.yaml::interpreter",
    ]


@pytest.mark.parametrize(
    ("words", "items"),
    [
        (["-m", "hang"], ["other::current", "other::interpreter"]),
        (["-m", "wrong_numbers and hardware"], ["tiny::current"]),
        (["-m", "simulated"], ["other::interpreter", "tiny::interpreter"]),
        (["-m", "gpu"], ["other::current", "tiny::current"]),
        (["-m", "gpus(n=1) and not hang"], ["tiny::current"]),
        (["-m", "gpus(n=2)"], []),
        (["-k", "tiny and interpreter"], ["tiny::interpreter"]),
    ],
)
def test_marks_and_names_select(ran: Run, words: list[str], items: list[str]) -> None:
    assert ran.collected(*words) == [f"cases/{item.replace('::', '/case.yaml::')}" for item in items]


def test_a_node_id_selects(ran: Run) -> None:
    ran("cases/tiny/case.yaml::interpreter").assert_outcomes(passed=1)


def test_confirmed_passes_and_a_missing_gpu_skips_where_the_manifest_says_so(ran: Run) -> None:
    result = ran("cases/tiny", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    line = MANIFEST.splitlines().index("  current:") + 1
    result.stdout.fnmatch_lines([f"SKIPPED * cases/tiny/case.yaml:{line}: current: 1 GPU is needed, and there is none"])


def test_not_confirmed_fails_with_the_first_lines_of_the_report(ran: Run, chosen: Chosen) -> None:
    chosen.ends(PASSED, FIXED)
    result = ran("cases/tiny", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(["not-reproduced: tiny, environment interpreter on CPU", "  Does not reproduce*"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.fnmatch_lines(["*repro trial 1: otherwise*"])  # what was said meanwhile, as pytest captured it


def test_x_stops_at_the_first(ran: Run, chosen: Chosen) -> None:
    chosen.ends(PASSED, FIXED)
    ran("cases", "-x", "-k", "interpreter").assert_outcomes(failed=1)


def test_the_engine_is_chosen_once_and_closed(ran: Run, chosen: Chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(FakeEngine, "__exit__", lambda *_: closed.append(1))
    ran("cases", "--casebook-engine", "venv").assert_outcomes(passed=2, skipped=2)
    assert (chosen.asked, closed) == (["venv"], [1])


def test_nothing_is_chosen_where_nothing_is_run(ran: Run, chosen: Chosen) -> None:
    ran.collected()
    assert chosen.asked == []


def test_options_reach_the_run(ran: Run, chosen: Chosen) -> None:
    ran("cases/tiny", "--casebook-trials", "4", "--casebook-image", "mine").assert_outcomes(passed=1, skipped=1)
    assert [request.arguments[0] for request in chosen.engine.requests] == ["repro.py", "fixed.py"] * 4
    assert {recipe.use_image for recipe in chosen.engine.recipes} == {"mine"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--casebook-trials", "0"], "*--casebook-trials*invalid*'0'*"),
        (["--casebook-trials", "many"], "*--casebook-trials*invalid*'many'*"),
        (["--casebook-engine", "dokcer"], "*--casebook-engine*'dokcer' (did you mean docker?)*"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(ran: Run, words: list[str], said: str) -> None:
    result = ran("cases", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_an_engine_that_is_gone_is_an_error_and_no_failure(ran: Run, chosen: Chosen) -> None:
    def gone(_request: TrialRequest) -> None:
        raise EngineError("could not run a trial: the engine went away") from OSError("broken pipe")

    chosen.engine.before_trial = gone
    result = ran("cases/tiny")
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(["could not run a trial: the engine went away"])
    result.stdout.no_fnmatch_line("*broken pipe*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_a_full_disk_is_an_error_and_no_failure(ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Evidence, path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Evidence, "write", full)
    result = ran("cases/tiny")
    result.assert_outcomes(errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*No space left on device*tiny*"])


class TestBrokenManifest:
    @pytest.fixture(autouse=True)
    def broken(self, checkout: Checkout) -> None:
        write(checkout, MANIFEST.replace("image: cuda13", "image: cuda14").replace("2m", "two"), "tiny")

    def test_it_is_an_error_with_file_and_line_and_the_rest_goes_on(self, ran: Run) -> None:
        result = ran("cases")
        result.assert_outcomes(passed=1, skipped=1, errors=1)
        result.stdout.fnmatch_lines(
            ["cases/tiny/case.yaml:12: environments.current.image: no image named cuda14*", "cases/tiny/case.yaml:28:*"]
        )
        result.stdout.no_fnmatch_line("cases/other/case.yaml:*")
        result.stdout.no_fnmatch_line("*Traceback*")

    def test_no_mark_leaves_it_out(self, ran: Run) -> None:
        assert ran.collected("-m", "hang and gpu") == [
            "cases/other/case.yaml::current",
            "cases/tiny/case.yaml::manifest",
        ]

    def test_a_name_does(self, ran: Run) -> None:
        assert ran.collected("-k", "other and current") == ["cases/other/case.yaml::current"]


class TestEvidence:
    def test_a_run_leaves_the_checkout_as_it_is(self, ran: Run, checkout: Checkout) -> None:
        ran("cases/tiny")
        assert not (checkout.root / "reports").exists()
        kept = checkout.root / ".pytest_cache" / "d" / "casebook" / "evidence" / "tiny"
        assert [path.name for path in kept.iterdir()] == ["interpreter.venv.cpu.json"]

    def test_without_a_cache_nothing_is_kept(self, ran: Run, checkout: Checkout) -> None:
        ran("cases/tiny", "-p", "no:cacheprovider").assert_outcomes(passed=1, skipped=1)
        assert not list(checkout.root.rglob("*.cpu.json"))

    def test_reports_are_written_where_they_are_asked_for(self, ran: Run, checkout: Checkout) -> None:
        ran("cases", "--casebook-reports", "out").assert_outcomes(passed=2, skipped=2)
        path = checkout.root / "out" / "evidence" / "tiny" / "interpreter.venv.cpu.json"
        assert Evidence.read(path).case.id == "tiny"
        assert {path.name for path in (checkout.root / "out").glob("*.md")} == {"README.md", "tiny.md", "other.md"}

    def test_a_short_run_replaces_none_that_has_more_trials(self, ran: Run, checkout: Checkout) -> None:
        ran("cases/tiny", "--casebook-reports", "out").assert_outcomes(passed=1, skipped=1)
        result = ran("cases/tiny", "--casebook-reports", "out", "--casebook-trials", "1")
        result.assert_outcomes(failed=1, skipped=1)
        result.stdout.fnmatch_lines(["evidence: not kept: fewer trials than the case asks for; *"])
        path = checkout.root / "out" / "evidence" / "tiny" / "interpreter.venv.cpu.json"
        assert Evidence.read(path).verdict == "confirmed"

    def test_reports_that_can_t_be_written_are_said_and_fail_the_run(self, ran: Run, checkout: Checkout) -> None:
        (checkout.root / "out" / "tiny.md").mkdir(parents=True)
        result = ran("cases/tiny", "--casebook-reports", "out")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["casebook: no reports: *Is a directory*tiny.md'"])

    def test_older_evidence_that_can_t_be_read_is_said_and_left_out(self, ran: Run, checkout: Checkout) -> None:
        older = checkout.root / "out" / "evidence" / "tiny" / "old.json"
        older.parent.mkdir(parents=True)
        older.write_text("{")
        result = ran("cases/tiny", "--casebook-reports", "out")
        assert result.ret == pytest.ExitCode.OK
        result.stderr.fnmatch_lines(["*old.json: can't be read as evidence: it is no JSON*"])
        assert (checkout.root / "out" / "tiny.md").is_file()

    def test_junit_has_what_the_verdict_rests_on(self, ran: Run, checkout: Checkout) -> None:
        ran("cases/tiny", "--junitxml", "junit.xml", "--casebook-reports", "out")
        junit = ET.parse(checkout.root / "junit.xml")
        assert {each.attrib["name"]: each.attrib["value"] for each in junit.iter("property")} == {
            "verdict": "confirmed",
            "rate_repro": "3/3",
            "rate_fixed": "4/4",
            "device": "CPU",
            "drift": "none",
            "evidence": str(checkout.root / "out" / "evidence" / "tiny" / "interpreter.venv.cpu.json"),
        }

    def test_junit_tells_failures_and_errors_apart(self, ran: Run, checkout: Checkout, chosen: Chosen) -> None:
        chosen.ends(PASSED, FIXED)
        (checkout.root / "cases" / "other" / "locks" / "interpreter.txt").unlink()
        ran("cases", "-k", "interpreter", "--junitxml", "junit.xml").assert_outcomes(failed=1, errors=1)
        junit = ET.parse(checkout.root / "junit.xml")
        told = {kind: [each.attrib["message"] for each in junit.iter(kind)] for kind in ("failure", "error")}
        assert "not-reproduced: tiny" in told["failure"][0]
        assert "there is no lock for environment interpreter" in told["error"][0]


def test_a_case_yaml_of_somebody_else_is_left_alone(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("cases") / "case.yaml").write_text("no: case")
    (pytester.path / "cases" / "mine").mkdir()
    (pytester.path / "cases" / "mine" / "case.yaml").write_text("no: case")
    assert pytester.runpytest_inprocess("-q").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def python(*words: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)


def test_a_run_without_cases_imports_nothing_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_imports():\n"
        "    assert 'casebook_workbench.pytest_plugin' in sys.modules\n"
        "    assert not {'pydantic', 'yaml', 'docker', 'gpu_casebook.manifest.case'} & set(sys.modules)\n"
    )
    done = python("-m", "pytest", "-p", "no:cacheprovider", cwd=pytester.path)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def plain(checkout: Checkout) -> Checkout:
    """A case that needs nothing but Python, twice."""
    directory = checkout.write(TWO_GRADES, name="plain", script="raise ValueError('sizes differ')\n").parent
    (directory / "fixed.py").write_text("print('all good')\n")
    write_locks(directory)
    return checkout


def pytest_in(checkout: Checkout, *words: str) -> Sequence[str]:
    done = python("-m", "pytest", "cases/plain", "--casebook-engine", "venv", "-rA", *words, cwd=checkout.root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_real_trials_alone_and_side_by_side(plain: Checkout, workers: str) -> None:
    said = pytest_in(plain, "-n", workers, "--casebook-reports", "out", "--junitxml", "junit.xml")
    for environment in ("one", "two"):
        assert f"PASSED cases/plain/case.yaml::{environment}" in said
        assert (plain.root / "out" / "evidence" / "plain" / f"{environment}.venv.cpu.json").is_file()
    page = (plain.root / "out" / "plain.md").read_text()
    assert "one" in page
    assert "two" in page
    verdicts = [each for each in ET.parse(plain.root / "junit.xml").iter("property") if each.get("name") == "verdict"]
    assert [each.get("value") for each in verdicts] == ["confirmed", "confirmed"]


@pytest.mark.slow
def test_a_case_of_this_checkout() -> None:
    words = ["-m", "pytest", "cases/rwkv6-backward", "-k", "front-end", "--casebook-engine", "venv"]
    done = python(*words, "--casebook-trials", "3", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout, done.stdout + done.stderr
