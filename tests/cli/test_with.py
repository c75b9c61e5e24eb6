"""`case --with WHEEL`, without an engine."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpu_casebook import cli
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import UsageError
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine


class FakeDocker(FakeEngine):
    name = "docker"


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = checkout.write().parent
    write_locks(directory)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    return checkout.root


def casebook(monkeypatch: pytest.MonkeyPatch, kind: type[FakeEngine], *words: str) -> tuple[int, str, FakeEngine]:
    engine = kind({"repro.py": [REPRO], "fixed.py": [FIXED]})
    monkeypatch.setattr(choosing, "choose", lambda *_: engine)
    result = CliRunner().invoke(cli.app, ["case", "tiny", *words], catch_exceptions=False)
    return result.exit_code, result.output, engine


@pytest.mark.usefixtures("here")
def test_trials_run_in_the_image_with_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def overlay(*words: Any) -> str:
        asked.append(words)
        return "casebook/override:1"

    monkeypatch.setattr(FakeDocker, "overlay", overlay)
    status, _, engine = casebook(monkeypatch, FakeDocker, "--with", "x-1.0-py3-none-any.whl")
    assert status == 0
    assert {recipe.use_image for recipe in engine.recipes} == {"casebook/override:1"}
    (_, recipe, wheels, _), *_ = asked
    assert (recipe.image, wheels) == ("cpu", [Path("x-1.0-py3-none-any.whl")])


@pytest.mark.usefixtures("here")
def test_only_over_the_cases_own_image_on_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, words in ((FakeEngine, ()), (FakeDocker, ("--image", "x"))):
        status, said, engine = casebook(monkeypatch, kind, "--with", "x-1.0-py3-none-any.whl", *words)
        assert status == UsageError.exit_status
        assert "casebook: --with" in said
        assert not engine.requests


@pytest.mark.usefixtures("here")
def test_a_case_that_cannot_run_here_is_skipped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--with", "x-1.0-py3-none-any.whl", "--environment", "current")
    status, said, _ = casebook(monkeypatch, FakeDocker, *words)
    assert (status, "tiny: skipped" in said) == (14, True)
