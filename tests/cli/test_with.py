"""`case --with WHEEL` and `--with NAME==VERSION`, by the command line, without an engine."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_casebook import cli
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.errors import UsageError
from tests.conftest import Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine


class NothingOver(FakeEngine):
    takes_over = False


@pytest.fixture
def here(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = checkout.write().parent
    write_locks(directory)
    monkeypatch.chdir(checkout.root)
    monkeypatch.setattr(hardware, "gpus", list)
    (checkout.root / "x-1.0-py3-none-any.whl").touch()
    return checkout.root


def casebook(
    monkeypatch: pytest.MonkeyPatch, *words: str, kind: type[FakeEngine] = FakeEngine
) -> tuple[int, str, FakeEngine]:
    engine = kind({"repro.py": [REPRO], "fixed.py": [FIXED]})
    monkeypatch.setattr(choosing, "choose", lambda *_: engine)
    result = CliRunner().invoke(cli.app, ["case", "tiny", *words], catch_exceptions=False)
    return result.exit_code, result.output, engine


def test_trials_run_in_the_environment_with_what_is_put_over_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--with", "x-1.0-py3-none-any.whl", "--with", "triton==3.7.0", "--pre")
    status, said, engine = casebook(monkeypatch, *words)
    assert status == 0
    assert {recipe.over for recipe in engine.recipes} == {("x-1.0-py3-none-any.whl", "triton==3.7.0")}
    assert {recipe.pre for recipe in engine.recipes} == {True}
    assert "drift: put over the lock: x-1.0-py3-none-any.whl, triton==3.7.0" in said
    (path,) = (here / "local").rglob("*.json")
    evidence = json.loads(path.read_text())
    assert evidence["command"].endswith("--with x-1.0-py3-none-any.whl --with triton==3.7.0 --pre"), (
        "the command that does it again"
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--image", "x"), "--with puts a package over the case's own environment; leave --image out"),
        (("--with", "torch.whl"), "--with torch.whl: not the name of a wheel; build one: pip wheel --no-deps"),
        (("--with", "dist/torch"), "--with dist/torch: neither a wheel's file, *.whl, nor a requirement"),
        (("--with", "gone-1.0-py3-none-any.whl"), "--with gone-1.0-py3-none-any.whl: can't be read: No such file"),
        (("--with", "a b"), "--with a b: neither a wheel's file, *.whl, nor a requirement such as triton==3.7.0"),
        (("--with", "a @ https://host/a-1-py3-none-any.whl"), "neither a wheel's file"),
    ],
)
def test_what_can_not_be_put_over_a_case_is_one_line(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    status, said, engine = casebook(monkeypatch, "--with", "x-1.0-py3-none-any.whl", *words)
    assert status == UsageError.exit_status
    assert told in said
    assert not engine.requests


@pytest.mark.usefixtures("here")
def test_an_engine_that_can_not_do_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said, _ = casebook(monkeypatch, "--with", "triton==3.7.0", kind=NothingOver)
    assert status == UsageError.exit_status
    assert "casebook: --with: the venv engine puts nothing over an environment; add --engine docker" in said


@pytest.mark.usefixtures("here")
def test_a_case_that_cannot_run_here_is_skipped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said, _ = casebook(monkeypatch, "--with", "x-1.0-py3-none-any.whl", "--environment", "current")
    assert (status, "tiny: skipped" in said) == (14, True)
