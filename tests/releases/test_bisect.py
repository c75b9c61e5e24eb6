"""The verb, from words to files: what is asked, what is refused, and what lies on disk."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from casebook_workbench.releases import environments as places
from casebook_workbench.releases import versions
from casebook_workbench.releases.page import page
from casebook_workbench.releases.records import Bisection, Call, bisections, record_path
from casebook_workbench.releases.versions import Releases, parse
from failure_signature.result import TrialResult
from gpu_casebook import cli
from gpu_casebook.devices import hardware, ledger
from gpu_casebook.engines import registry as choosing
from gpu_casebook.engines.base import Prepared
from gpu_casebook.errors import BuildError
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest
from tests.conftest import Checkout, write_locks
from tests.fakes import REPRO, FakeEngine
from tests.run.test_pipeline import H200

ROOT = Path(__file__).parents[2]
PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)
NUMPYS = ("1.24.0", "1.24.1", "1.25.0", "1.25.1", "1.25.2", "1.26.0", "1.26.4")
YANKED = "1.25.9"
PRE = "1.26.0rc1"
LATER = "1.26.5"
"""For a later Python."""


def index(package: str) -> Releases:
    files: list[dict[str, object]] = [{"filename": f"{package}-{each}-py3-none-any.whl"} for each in (*NUMPYS, PRE)]
    files.append({"filename": f"{package}-{YANKED}-py3-none-any.whl", "yanked": "a bug of its own"})
    files.append({"filename": f"{package}-{LATER}-py3-none-any.whl", "requires-python": ">=3.12"})
    return parse(package, versions.JSON, json.dumps({"files": files}).encode())


def _of(package: str, *numbers: str) -> Releases:
    files = [{"filename": f"{package}-{each}-py3-none-any.whl"} for each in numbers]
    return parse(package, versions.JSON, json.dumps({"files": files}).encode())


def locked(requirements: Sequence[str], _python: str, _previous: str = "", **_how: Any) -> str:
    """What stands for a lock: the requirements themselves, as the engine below reads them."""
    return "".join(f"{each}\n" for each in requirements)


class Versioned(FakeEngine):
    """Fails with numpy versions from `first_bad` on. Versions in `broken` can't be installed."""

    def __init__(self, bad: Sequence[str], broken: Mapping[str, str] | None = None) -> None:
        super().__init__({})
        self.bad = bad
        self.broken = broken or {}
        self.ran: list[str] = []

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        version = recipe.lock.strip().rpartition("==")[2]
        if version in self.broken:
            raise BuildError(self.broken[version])
        return Prepared(key=version, python="/env/bin/python")

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        self.before_trial(request)
        self.ran.append(prepared.key)
        self.requests.append(request)
        return REPRO if prepared.key in self.bad else PASSED


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one case, whose packages come from nowhere."""
    directory = checkout.write().parent
    write_locks(directory)
    steps = tmp_path_factory.mktemp("steps")
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    monkeypatch.setattr(places, "_locks", lambda: steps)
    monkeypatch.setattr(places, "scratch_lock", locked)
    monkeypatch.setattr("casebook_workbench.releases.bisect.released", index)
    return checkout.root


def on(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    monkeypatch.setattr(choosing, "choose", lambda *_: engine)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Versioned:
    found = Versioned(bad=(*NUMPYS[4:], PRE))
    on(monkeypatch, found)
    return found


def casebook(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=False)
    return result.exit_code, result.output


ASKED = ("bisect", "tiny", "--package", "numpy")
ENDS = ("--good", "1.24.0", "--bad", "1.26.4")


def read(here: Path) -> Bisection:
    [found] = bisections(here / "local", "tiny")
    return found


@pytest.mark.usefixtures("here", "engine")
class TestFound:
    def test_the_release_its_record_and_its_page(self, here: Path) -> None:
        status, said = casebook(*ASKED, *ENDS)
        assert status == 0
        assert "numpy: first bad release: 1.25.2" in said
        assert "report: local/bisect/tiny.numpy.md" in said
        found = read(here)
        assert found.first == ["1.25.2"]
        assert "1.24.0" in found.called(Call.GOOD)
        assert "1.26.4" in found.called(Call.BAD)
        assert found.passed_over == {YANKED: "yanked: a bug of its own", PRE: "a pre-release"}
        page = (here / "local" / "bisect" / "tiny.numpy.md").read_text()
        assert page.startswith("# tiny over the releases of numpy\n\n**first bad release: 1.25.2**\n")
        assert "| 1 | 1.26.4 | bad |" in page
        assert f"- {YANKED}: yanked: a bug of its own" in page
        assert "--good 1.24.0 --bad 1.26.4 --environment interpreter --engine venv" in page
        assert not list((here / "local" / "bisect").glob("*unfinished*"))

    def test_its_page_is_rendered_again_from_the_record(self, here: Path) -> None:
        casebook(*ASKED, *ENDS)
        page = here / "local" / "bisect" / "tiny.numpy.md"
        before = page.read_text()
        page.unlink()
        status, said = casebook("report", "--reports", "local")
        assert (status, page.read_text()) == (0, before)
        assert "wrote local/bisect/tiny.numpy.md" in said

    def test_the_release_that_fixed_it(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        on(monkeypatch, Versioned(bad=NUMPYS[:3]))
        status, said = casebook(*ASKED, "--bad", "1.24", "--fixed-in", "1.26.4")
        assert (status, "numpy: first fixed release: 1.25.1" in said) == (0, True)
        assert read(here).question.seeks_fix

    def test_what_can_not_be_installed_is_skipped_and_named(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        on(monkeypatch, Versioned(bad=NUMPYS[4:], broken={"1.25.2": "no wheel fits"}))
        said = casebook(*ASKED, *ENDS)[1]
        assert "first bad release is one of: 1.25.2, 1.26.0" in said
        assert "It stays open between 2 releases, because these could not tell: 1.25.2." in said
        assert "no wheel fits" in (here / "local" / "bisect" / "tiny.numpy.md").read_text()

    def test_pre_releases_are_tried_where_that_is_asked_or_one_is_an_end(self, here: Path) -> None:
        casebook(*ASKED, *ENDS, "--pre")
        assert PRE in read(here).versions
        casebook(*ASKED, "--good", "1.24.0", "--bad", PRE)
        assert read(here).versions[-1] == PRE

    def test_a_search_for_a_wording_tells_nobody_that_the_failure_was_not_there(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = Versioned(bad=NUMPYS[4:])
        on(monkeypatch, found)
        reworded = replace(REPRO, stdout="rel_err=0.5\nin other words\n")
        monkeypatch.setattr(found, "run", lambda prepared, _request: reworded if prepared.key in NUMPYS[4:] else REPRO)
        said = casebook(*ASKED, *ENDS, "--expect-message", "other words")[1]
        assert "first bad release: 1.25.2" in said
        assert not bisections(here / "local", "tiny")
        page = (here / "local" / "bisect" / "tiny.numpy.md").read_text()
        assert "Only a message that matches `other words` is the failure" in page

    def test_nothing_between_is_said_and_only_the_ends_are_tried(self, here: Path, engine: Versioned) -> None:
        status, said = casebook(*ASKED, "--good", "1.25.1", "--bad", "1.25.2")
        assert (status, read(here).first) == (0, ["1.25.2"])
        assert "no releases between them: only the ends are tried" in said
        assert set(engine.ran) == {"1.25.1", "1.25.2"}

    def test_the_environments_are_made_of_the_cases_with_that_package_replaced(self, here: Path) -> None:
        manifest = here / "cases" / "tiny" / "case.yaml"
        manifest.write_text(manifest.read_text().replace("[numpy==1.26.4]", "[six==1.16.0, numpy==1.26.4]"))
        casebook(*ASKED, *ENDS)
        self._made_of(here, "six==1.16.0")
        casebook(*ASKED, *ENDS, "--with", "Six==1.17.0")
        self._made_of(here, "six==1.17.0")
        page = (here / "local" / "bisect" / "tiny.numpy.md").read_text()
        assert "`six` was `1.17.0` all along, which the case pins otherwise" in page
        assert "--with six==1.17.0" in page

    @staticmethod
    def _made_of(here: Path, six: str) -> None:
        steps = read(here).steps
        wanted = {
            hashlib.sha256(f"{six}\nnumpy=={each.version}\n".encode()).hexdigest(): each.version for each in steps
        }
        assert {step.lock: step.version for step in steps} == wanted


@pytest.mark.usefixtures("here", "engine")
class TestRefused:
    @pytest.mark.parametrize(
        ("words", "status", "line"),
        [
            ((*ASKED, "--good", "1.24.0", "--bad", "1.27"), 2, "numpy 1.27: there is no such release; the nearest are"),
            ((*ASKED, "--good", YANKED, "--bad", "1.26.4"), 2, "numpy 1.25.9 was yanked: a bug of its own"),
            ((*ASKED, "--good", "1.24.0", "--bad", LATER), 2, "numpy 1.26.5 can't be installed here: it needs Python"),
            ((*ASKED, "--good", "new", "--bad", "1.26.4"), 2, "numpy new: that is no version"),
            ((*ASKED, "--good", "1.26.4", "--bad", "1.24.0"), 2, "write --bad 1.24.0 --fixed-in 1.26.4"),
            ((*ASKED, "--fixed-in", "1.24.0", "--bad", "1.26.4"), 2, "write --good 1.24.0 --bad 1.26.4"),
            ((*ASKED, "--good", "1.24", "--bad", "1.24.0"), 2, "nothing is between 1.24.0 and itself"),
            ((*ASKED, "--bad", "1.24.0"), 2, "name one other end"),
            ((*ASKED, *ENDS, "--fixed-in", "1.26.4"), 2, "name one other end"),
            (("bisect", "tiny", "--package", "numpi", *ENDS), 2, "--package numpi: environment interpreter of tiny"),
            (("bisect", "tiny", "--package", "numpi", *ENDS), 2, "did you mean numpy?"),
            (("bisect", "tinny", "--package", "numpy", *ENDS), 2, "no case 'tinny'; did you mean tiny?"),
            ((*ASKED, *ENDS, "--environment", "interpretr"), 2, "did you mean interpreter?"),
            ((*ASKED, *ENDS, "--environment", "current"), 6, "no environment of tiny can run here: current: 1 GPU"),
            ((*ASKED, *ENDS, "--variant", "broken"), 2, "--variant broken: write repro or fixed"),
            ((*ASKED, *ENDS, "--expect-message", "(x"), 2, "--expect-message (x: is not a regular expression"),
            ((*ASKED, *ENDS, "--with", "six"), 2, "--with six: 'six' is not pinned"),
            ((*ASKED, *ENDS, "--with", "numpy==1.25.0"), 2, "--with numpy==1.25.0: name another package"),
            ((*ASKED, *ENDS, "--with", "six==1.0"), 2, "--with six==1.0: name another package that the case pins"),
            ((*ASKED, *ENDS, "--resume"), 2, "--resume: there is nothing to go on with"),
            ((*ASKED, "--good", "1.26.0", "--bad", "1.26.4"), 22, "numpy 1.26.0 was said to be good, and fails"),
            ((*ASKED, "--good", "1.24.0", "--bad", "1.25.0"), 22, "numpy 1.25.0 was said to be bad, and 3 trials"),
        ],
    )
    def test_it_is_one_clear_line(self, here: Path, words: Sequence[str], status: int, line: str) -> None:
        got, said = casebook(*words)
        assert (got, line in said, "Traceback" in said) == (status, True, False), said
        assert not list(here.glob("*/bisect/*.json"))

    def test_an_index_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(_package: str) -> Releases:
            raise BuildError("the package index can't be reached: connection refused")

        monkeypatch.setattr("casebook_workbench.releases.bisect.released", away)
        status, said = casebook(*ASKED, *ENDS)
        assert (status, said.endswith("casebook: the package index can't be reached: connection refused\n")) == (
            5,
            True,
        )

    def test_an_index_that_goes_away_is_no_skip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = "the environment could not be built: error sending request for url (x): connection refused"
        on(monkeypatch, Versioned(bad=NUMPYS[4:], broken={"1.25.1": gone}))
        status, said = casebook(*ASKED, *ENDS)
        assert (status, "connection refused" in said) == (5, True)
        on(monkeypatch, Versioned(bad=NUMPYS[4:]))
        assert "first bad release: 1.25.2" in casebook(*ASKED, *ENDS, "--resume")[1]

    def test_a_trial_that_the_machine_spoils_each_time_is_tried_again_later(
        self, monkeypatch: pytest.MonkeyPatch, engine: Versioned
    ) -> None:
        spoiled = TrialResult(stdout="", stderr="", duration_s=0.1, infra="the container did not start")
        with monkeypatch.context() as broken:
            broken.setattr(engine, "run", lambda prepared, request: spoiled)
            status, said = casebook(*ASKED, *ENDS)
        assert status == 6
        assert "all 3 tries of a trial: the container did not start; fix that" in said
        assert "first bad release: 1.25.2" in casebook(*ASKED, *ENDS)[1]

    def test_two_at_once_on_one_case(self) -> None:
        from filelock import FileLock

        with FileLock(places._locks() / "tiny.lock"):
            status, said = casebook(*ASKED, *ENDS)
        assert (status, "another process tries versions of tiny just now" in said) == (2, True)


class TestStopped:
    @pytest.fixture
    def stopped(self, here: Path, engine: Versioned) -> list[str]:
        """What ran before somebody pressed Ctrl-C."""

        def interrupt(_request: TrialRequest) -> None:
            if len(engine.ran) == 20:
                raise KeyboardInterrupt

        engine.before_trial = interrupt
        status, _ = casebook(*ASKED, *ENDS)
        assert status == 130
        assert list(here.glob("local/bisect/*")) == [here / "local" / "bisect" / "tiny.numpy.unfinished.json"]
        engine.before_trial = lambda _request: None
        ran, engine.ran = engine.ran, []
        return ran

    def test_it_goes_on_where_it_was(self, here: Path, stopped: list[str], engine: Versioned) -> None:
        status, said = casebook(*ASKED, *ENDS, "--resume")
        assert (status, "first bad release: 1.25.2" in said) == (0, True)
        trials = sum(step.trials for step in read(here).steps)
        assert len(stopped) + len(engine.ran) == trials
        assert "1.26.4" not in engine.ran

    @pytest.mark.usefixtures("stopped")
    def test_nothing_that_was_done_is_thrown_away_unasked(self, here: Path) -> None:
        status, said = casebook(*ASKED, *ENDS)
        assert status == 2
        assert "was begun and stopped; go on with --resume, or begin again with --restart" in said
        assert casebook(*ASKED, *ENDS, "--restart")[0] == 0

    @pytest.mark.usefixtures("stopped")
    @pytest.mark.parametrize("words", [("--alpha", "0.05"), ("--trials", "9"), ("--expect-message", "x")])
    def test_another_question_does_not_go_on_with_it(self, here: Path, words: Sequence[str]) -> None:
        status, said = casebook(*ASKED, *ENDS, "--resume", *words)
        assert (status, "what was stopped was another question, or the case has changed" in said) == (2, True)

    @pytest.mark.usefixtures("stopped")
    def test_nor_does_another_state_of_the_case(self, here: Path) -> None:
        (here / "cases" / "tiny" / "repro.py").write_text("print('rel_err=1')\n")
        assert "the case has changed" in casebook(*ASKED, *ENDS, "--resume")[1]

    @pytest.mark.usefixtures("stopped")
    def test_a_record_that_can_not_be_read_says_what_to_do(self, here: Path) -> None:
        (here / "local" / "bisect" / "tiny.numpy.unfinished.json").write_text("{}")
        status, said = casebook(*ASKED, *ENDS, "--resume")
        assert (status, "can't be read as a bisection: question: Field required" in said) == (1, True)


@pytest.mark.usefixtures("here")
def test_a_gpu_is_held_while_trials_run_and_not_while_something_is_installed(
    monkeypatch: pytest.MonkeyPatch, engine: Versioned
) -> None:
    told: list[str] = []

    @contextmanager
    def lock(gpus: Sequence[int], *_how: object) -> Iterator[None]:
        told.append(f"hold {list(gpus)}")
        yield
        told.append("let go")

    prepare = engine.prepare

    def prepared(recipe: Recipe, note: Note) -> Prepared:
        told.append("install")
        return prepare(recipe, note)

    monkeypatch.setattr(hardware, "gpus", lambda: [H200])
    monkeypatch.setattr(ledger, "hold", lock)
    monkeypatch.setattr(engine, "gpu_access", lambda: GpuAccess(mode="direct"))
    monkeypatch.setattr(engine, "prepare", prepared)
    engine.bad = ["2.2.6"]
    monkeypatch.setattr("casebook_workbench.releases.bisect.released", lambda package: _of(package, "2.2.5", "2.2.6"))
    engine.before_trial = lambda request: told.append(f"trial on {list(request.gpus)}")
    status, said = casebook(*ASKED, "--environment", "current", "--good", "2.2.5", "--bad", "2.2.6")
    assert status == 0, said
    assert list(dict.fromkeys(told)) == ["install", "hold [0]", "trial on [0]", "let go"]
    held = ["hold [0]", "trial on [0]", "let go"]  # of each trial, since they share the GPU
    steps = " ".join(told).split("install")[1:]
    assert len(steps) == 2
    assert not any(step.replace(" ".join(held), "").strip() for step in steps)


@pytest.mark.parametrize(
    ("requirements", "changes", "wanted"),
    [
        (["Torch==2.1", "numpy==1"], {"torch": "2.2"}, ["Torch==2.2", "numpy==1"]),
        (["jax[tpu,cuda]==0.5"], {"jax": "0.6"}, ["jax[cuda,tpu]==0.6"]),
        (["a==1", "b==2"], {"b": None}, ["a==1", "b"]),
    ],
)
def test_requirements_with_a_package_replaced(
    requirements: list[str], changes: dict[str, str | None], wanted: list[str]
) -> None:
    assert places.changed(requirements, changes) == wanted


@pytest.mark.parametrize("path", sorted((ROOT / "reports" / "bisect").glob("*.json")), ids=lambda path: path.stem)
def test_each_record_that_is_committed_is_finished_and_has_its_page(path: Path) -> None:
    found = Bisection.read(path)
    assert found.first
    assert page(found) == path.with_suffix(".md").read_text()


def test_tritons_message_changed_with_3_5() -> None:
    """Run over the real releases, of 200 MB each: too much to fetch in a test."""
    found = Bisection.read(record_path(ROOT / "reports", "rwkv6-backward", "triton"))
    assert found.first == ["3.5.0"]
    assert found.calls["3.4.0"] is Call.GOOD


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("no wheel\n  fits (the whole log: /home/ann/.cache/casebook/logs/1.log)", "no wheel fits"),
        ("it failed\nfull log: /var/log/build-cpu-1.log", "it failed"),
        ("Failed to fetch: `https://files.example.org/a/b/x-1.whl`: 404", "Failed to fetch: `x-1.whl`: 404"),
        ("404 for url (https://me:token@index.example.org/simple/x/)", "404 for url (an address)"),
    ],
)
def test_what_uv_says_is_fit_to_be_published(words: str, told: str) -> None:
    assert places.presentable(words) == told


def test_help_says_what_each_option_does() -> None:
    said = casebook("bisect", "--help")[1]
    for option in ("--package", "--good", "--bad", "--fixed-in", "--resume", "--expect-message", "--good-message"):
        assert option in said
