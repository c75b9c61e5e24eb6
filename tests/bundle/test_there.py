import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_casebook.bundle import there
from gpu_casebook.bundle.document import Returned
from gpu_casebook.bundle.pack import PackOptions, pack
from gpu_casebook.console import Console
from gpu_casebook.engines.base import Engine
from gpu_casebook.errors import CasebookError, MachineError
from gpu_casebook.evidence import Verdict
from gpu_casebook.guest import starter
from gpu_casebook.run.options import Options
from gpu_casebook.trial import TrialResult
from tests.bundle.conftest import Daemon
from tests.conftest import Checkout
from tests.fakes import FIXED

pytestmark = pytest.mark.usefixtures("no_index")

PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run changes in here is put back."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    on = Daemon()
    monkeypatch.setattr(there, "choose", lambda *_: on)
    return on


def laid_out(checkout: Checkout, options: PackOptions, into: Path, engine: Engine | None = None) -> Path:
    into.mkdir()
    pack(checkout.root, options, engine, into / "x.casebook.tar", print)
    return starter.opened([into / "x.casebook.tar"])


@pytest.fixture
def home(checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
    return laid_out(checkout, options, tmp_path / "there")


def run(home: Path, options: Options | None = None) -> tuple[Returned, Path, str]:
    said = io.StringIO()
    returned, path = there.run(home, options or Options(), Console(said))
    return returned, path, said.getvalue()


def test_the_verdict_comes_back_in_one_file(home: Path, engine: Daemon) -> None:
    returned, path, said = run(home)
    assert path == home.parent / "tiny.interpreter.evidence.json"
    assert Returned.read(path) == returned
    assert (returned.verdict, returned.verdict.exit_status) == (Verdict.CONFIRMED, 0)
    assert returned.console == said
    assert "confirmed: tiny, environment interpreter on CPU" in said
    assert "repro trial 1: as-expected" in said
    assert "preparing host/image:1 ..." in said
    assert not returned.bundle.members
    assert (home / "reports" / "tiny.md").is_file()


def test_any_verdict_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Daemon({"repro.py": [PASSED], "fixed.py": [FIXED]})
    monkeypatch.setattr(there, "choose", lambda *_: fake)
    assert run(home)[0].verdict.exit_status == Verdict.NOT_REPRODUCED.exit_status


def test_the_runner_names_what_it_was_packed_from(home: Path, engine: Daemon) -> None:
    returned = run(home)[0]
    assert (home / "checkout" / "runner" / "REVISION").read_text() == f"{returned.bundle.runner}\n"


def test_options_reach_the_run(home: Path, engine: Daemon) -> None:
    returned = run(home, Options(trials=1, image="other:2", probes=False))[0]
    assert returned.evidence
    assert len(returned.evidence.trials) == 2
    assert engine.recipes[0].use_image == "other:2"
    assert "--environment interpreter" in returned.evidence.command
    assert "--image other:2" in returned.evidence.command


def test_what_can_not_run_there_comes_back_with_its_reason(
    checkout: Checkout, options: PackOptions, tmp_path: Path, engine: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_casebook.devices.hardware.gpus", list)
    on_gpu = PackOptions(case=options.case, environment="current", engine="docker", image="other:2", pythons=["3.12"])
    returned, path, said = run(laid_out(checkout, on_gpu, tmp_path / "gpu"))
    assert returned.verdict.exit_status == Verdict.SKIPPED.exit_status
    assert Returned.read(path).skipped == ["current: 1 GPU is needed, and there is none"]
    assert "tiny: skipped" in said


def test_an_image_that_the_host_lacks_is_never_pulled(home: Path, engine: Daemon) -> None:
    engine.images.clear()
    with pytest.raises(MachineError, match="has no image host/image:1, and there is no network to pull it from"):
        run(home)


class TestPackedImage:
    @pytest.fixture
    def home(self, checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
        return laid_out(checkout, replace(options, image=None), tmp_path / "image", Daemon())

    def test_it_is_loaded_and_used_as_built(self, home: Path, engine: Daemon) -> None:
        said = run(home)[2]
        assert engine.loaded == b"layers"
        assert engine.recipes[0].use_image is None
        assert "loading the bundle's environment ..." in said

    def test_not_where_it_is_already(self, home: Path, engine: Daemon) -> None:
        engine.images.add("casebook/cpu:1")
        run(home)
        assert engine.loaded == b""

    def test_not_where_another_is_named(self, home: Path, engine: Daemon) -> None:
        run(home, Options(image="other:2"))
        assert engine.loaded == b""

    def test_an_engine_that_does_not_take_it_is_one_line(self, home: Path, engine: Daemon) -> None:
        engine.brings.clear()
        with pytest.raises(MachineError, match="has no image casebook/cpu:1"):
            run(home)


@pytest.mark.usefixtures("engine")
def test_a_case_with_a_file_more_is_not_run(home: Path) -> None:
    (home / "checkout" / "cases" / "tiny" / "helper.py").write_text("")
    with pytest.raises(CasebookError, match="tiny: the case is not as it was packed"):
        run(home)


def test_only_the_bundles_own_runner_runs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not there.is_its_own(home)
    monkeypatch.setattr(there, "CHECKOUT", home / "checkout")
    assert there.is_its_own(home)


@pytest.mark.usefixtures("tmp_path")
def test_a_broken_list_is_one_line(home: Path) -> None:
    text = (home / starter.LIST).read_text()
    (home / starter.LIST).write_text(text.replace('"engine": "docker"', '"engine": 1'))
    with pytest.raises(
        CasebookError,
        match=r"bundle\.json: .*: engine: Input should be .*; copy the bundle again",
    ):
        run(home)
