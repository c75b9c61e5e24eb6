import errno
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failure_signature.result import TrialResult
from failure_signature.trials import Verdict
from gpu_casebook import cli
from gpu_casebook.cli import base
from gpu_casebook.daemon import podman
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import EngineError, ExitStatus, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import build
from gpu_casebook.trial import Note, Recipe
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine

PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)
BROKEN = TrialResult(stdout="", stderr="", duration_s=0.1, infra="the container did not start")
CRASHED = TrialResult(stdout="", stderr="", duration_s=0.1, signal="SIGSEGV")


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one case, as the working directory, on a machine without a GPU."""
    directory = checkout.write().parent
    write_locks(directory)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    return checkout.root


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    monkeypatch.setattr(choosing, "choose", lambda *_: on)
    return on


def casebook(*words: str) -> tuple[int, str]:
    """Exit status, and both streams."""
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("repro", "fixed", "verdict"),
    [
        (REPRO, FIXED, Verdict.CONFIRMED),
        (PASSED, FIXED, Verdict.NOT_REPRODUCED),
        (CRASHED, FIXED, Verdict.WRONG_FAILURE),
        (REPRO, PASSED, Verdict.FIX_FAILS),
        (BROKEN, FIXED, Verdict.INCONCLUSIVE),
    ],
)
def test_each_verdict_ends_with_its_own_status_and_leaves_a_report(
    here: Path, monkeypatch: pytest.MonkeyPatch, repro: TrialResult, fixed: TrialResult, verdict: Verdict
) -> None:
    monkeypatch.setattr(choosing, "choose", lambda *_: FakeEngine({"repro.py": [repro], "fixed.py": [fixed]}))
    status, said = casebook("case", "tiny")
    assert status == ExitStatus.of(verdict)
    assert f"{verdict}: tiny, environment interpreter on CPU" in said
    assert verdict in (here / "local" / "tiny.md").read_text()
    assert list((here / "local" / "evidence" / "tiny").glob("*.json"))


@pytest.mark.usefixtures("engine")
def test_skipped_has_a_status_of_its_own_and_leaves_no_evidence(here: Path) -> None:
    status, said = casebook("case", "tiny", "--environment", "current")
    assert status == ExitStatus.of(Verdict.SKIPPED)
    assert "current: 1 GPU is needed, and there is none" in said
    assert [path.name for path in (here / "local").iterdir()] == [".gitignore"]
    assert not (here / "reports").exists()


@pytest.mark.usefixtures("engine")
def test_own_runs_are_ignored_by_git_and_published_ones_are_not(here: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    assert casebook("case", "tiny")[1].endswith("report: local/tiny.md\n")
    status = ["git", "status", "--porcelain", "--untracked-files=all", "reports", "local"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""
    assert casebook("case", "tiny", "--publish")[1].endswith("report: reports/tiny.md\n")
    assert "?? reports/tiny.md" in subprocess.run(status, capture_output=True, text=True, check=True).stdout
    own, published = (
        json.loads(next(here.glob(f"{name}/evidence/tiny/*.json")).read_text()) for name in ("local", "reports")
    )
    assert own["verdict"] == published["verdict"]


@pytest.mark.usefixtures("engine", "here")
def test_publish_and_another_place_are_two_places() -> None:
    status, said = casebook("case", "tiny", "--publish", "--reports", "elsewhere")
    assert status == UsageError.exit_status
    assert said == "casebook: --publish writes to reports/, and --reports to elsewhere; leave one of them out\n"


def test_help_and_docs_list_every_verdict() -> None:
    page = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
    for verdict in Verdict:
        assert f"{ExitStatus.of(verdict)} {verdict}" in base.EPILOG
        assert re.search(rf"^\| {verdict} \|.*\| {ExitStatus.of(verdict)} \|$", page, re.MULTILINE)


@pytest.mark.usefixtures("here", "engine")
@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (["case", "tinny"], 2, "casebook: no case 'tinny'; did you mean tiny?"),
        (["case", "tiny", "--environment", "curent"], 2, "did you mean current?"),
        (["case", "tiny", "--timeout", "soon"], 2, "--timeout soon: write 90s, 2m, 1h30m or a number of seconds"),
        (["case", "tiny", "--gpu", "first"], 2, "--gpu first: write an index such as 0, or several: 0,1"),
        (["case", "tiny", "--gpu", "3"], 6, "--gpu 3: no such GPU on this machine (there are: none)"),
        (["case", "tiny", "--trials", "0"], 2, "--trials"),
        (["case"], 2, "Missing argument"),
        (["cases"], 2, "No such command 'cases'"),
    ],
)
def test_a_mistake_in_the_command_is_one_clear_line(words: list[str], status: int, line: str) -> None:
    got, said = casebook(*words)
    assert got == status
    assert line in said
    assert "Traceback" not in said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("environment", "image"), [("", "cuda13"), ("interpreter", "cpu")])
def test_the_image_of_one_environment_is_named_alone(
    monkeypatch: pytest.MonkeyPatch, environment: str, image: str
) -> None:
    """For a script, which takes the output as the name: progress goes elsewhere."""

    def ensure(_client: object, _root: Path, recipe: Recipe, note: Note, *_: object) -> ImageFacts:
        note("building")
        return ImageFacts(name=f"casebook/{recipe.image}:key", id="sha256:0", size_bytes=1)

    monkeypatch.setattr(podman, "connect_any", lambda *_: None)
    monkeypatch.setattr(build, "ensure", ensure)
    result = CliRunner().invoke(cli.app, ["images", "--name-of", environment, "--", "tiny"])
    assert (result.exit_code, result.stdout) == (0, f"casebook/{image}:key\n"), result.output
    assert casebook("images", "--name-of", "none", "--", "tiny")[0] == 2


@pytest.mark.usefixtures("here")
def test_an_unknown_engine_is_a_mistake_in_the_command() -> None:
    assert casebook("case", "tiny", "--engine", "dokcer")[0] == 2


def test_every_mistake_in_a_manifest_is_listed(here: Path) -> None:
    manifest = here / "cases" / "tiny" / "case.yaml"
    manifest.write_text(manifest.read_text().replace("image: cuda13", "image: cuda14").replace("2m", "two minutes"))
    status, said = casebook("check")
    assert status == 3
    assert "cases/tiny/case.yaml:12: environments.current.image: no image named cuda14" in said
    assert "timeout" in said
    assert casebook("case", "tiny")[0] == 3


def test_outside_a_checkout_the_line_says_where_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "CHECKOUT", tmp_path / "site")
    status, said = casebook("check")
    assert (status, "checkout" in said) == (2, True)


@pytest.mark.usefixtures("here")
class TestFaults:
    """What happens to the machine during a run ends it in one line, and evidence written so far is kept."""

    def test_an_engine_that_goes_away(self, engine: FakeEngine) -> None:
        def gone(_request: object) -> None:
            raise EngineError("could not run a trial: the engine went away")

        engine.before_trial = gone
        status, said = casebook("case", "tiny")
        assert status == 4
        assert said.endswith("casebook: could not run a trial: the engine went away\n")

    @pytest.mark.usefixtures("engine")
    def test_a_full_disk(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert casebook("case", "tiny")[0] == 0
        before = {path: path.read_bytes() for path in (here / "local").rglob("*") if path.is_file()}

        def full(*_: object, **__: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device", "local/x")

        monkeypatch.setattr(Path, "write_text", full)
        status, said = casebook("case", "tiny")
        assert (status, "no space left on local/x" in said) == (6, True)
        assert {path: path.read_bytes() for path in (here / "local").rglob("*") if path.is_file()} == before

    def test_ctrl_c(self, engine: FakeEngine) -> None:
        def interrupted(_request: object) -> None:
            raise KeyboardInterrupt

        engine.before_trial = interrupted
        status, said = casebook("case", "tiny")
        assert status == 130
        assert said.endswith("casebook: interrupted; nothing is left running\n")


@pytest.mark.usefixtures("engine")
def test_reports_are_rendered_again_with_nothing_run(here: Path) -> None:
    casebook("case", "tiny", "--publish")
    page = here / "reports" / "tiny.md"
    before = page.read_text()
    page.unlink()
    status, said = casebook("report")
    assert (status, page.read_text()) == (0, before)
    assert "wrote reports/tiny.md" in said


def test_schema_writes_the_file_that_editors_read(here: Path) -> None:
    assert casebook("schema")[0] == 0
    assert (here / "cases" / "case.schema.json").is_file()


@pytest.mark.parametrize(("text", "value"), [("90", 90.0), ("90s", 90.0), ("2m", 120.0), ("1h30m", 5400.0)])
def test_durations(text: str, value: float) -> None:
    assert base.seconds(text) == value


def test_help_names_every_option() -> None:
    said = casebook("case", "--help")[1]
    for option in ("--engine", "--environment", "--image", "--trials", "--timeout", "--gpu", "--keep", "--no-probes"):
        assert option in said


@pytest.mark.parametrize(
    ("repro", "expected", "status", "said"),
    [
        (REPRO, "confirmed", 0, "confirmed was expected\n"),
        (PASSED, "not-reproduced", 0, "not-reproduced was expected\n"),
        (REPRO, "not-reproduced", 15, "not-reproduced was expected, and the verdict is confirmed\n"),
        (CRASHED, "not-reproduced", 15, "not-reproduced was expected, and the verdict is wrong-failure\n"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_verdict_that_is_expected(
    monkeypatch: pytest.MonkeyPatch, repro: TrialResult, expected: str, status: int, said: str
) -> None:
    engine = FakeEngine({"repro.py": [repro], "fixed.py": [FIXED]})
    monkeypatch.setattr(choosing, "choose", lambda *_: engine)
    ended, output = casebook("case", "tiny", "--expect", expected)
    assert (ended, output.endswith(said)) == (status, True), output


@pytest.mark.usefixtures("here")
def test_there_is_no_such_verdict_to_expect() -> None:
    ended, output = casebook("case", "tiny", "--expect", "fixed")
    assert (ended, "--expect: there is no verdict 'fixed'; there are: confirmed, not-reproduced" in output) == (2, True)


@pytest.fixture
def _handlers() -> Iterator[None]:
    """Give this process its signals back: no later test could be interrupted otherwise."""
    before = {number: signal.getsignal(number) for number in base._ENDINGS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_sigterm_is_an_interrupt_and_a_second_one_does_not_stop_the_cleaning_up(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyboardInterrupt):
        base._interrupt()
    for number in base._ENDINGS:
        signal.raise_signal(number)
    assert capfd.readouterr().err == "casebook: ending what still runs; this takes seconds\n" * len(base._ENDINGS)
