"""`clean` and `clean --dry-run`, without an engine."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_casebook import cli
from gpu_casebook.devices import hardware
from gpu_casebook.engines import registry as choosing
from gpu_casebook.engines.base import Engine
from gpu_casebook.manifest.case import find, known_images
from gpu_casebook.run.plan import recipes
from gpu_casebook.trial import Recipe
from tests.engines.subjects import ROOT
from tests.fakes import FakeEngine


class Littered(FakeEngine):
    """Something was left, until it is swept."""

    there = True

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        found = ["container casebook-1"] if self.there else []
        self.there = self.there and dry_run
        return found


@pytest.fixture
def litter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed run left, and a GPU that is set aside."""
    engine = Littered({})

    def reachable(_root: Path) -> Sequence[Engine]:
        return [engine]

    monkeypatch.setattr(choosing, "reachable", reachable)
    hardware.set_aside("GPU-0", 0, "it needs a reset")


def clean(*words: str) -> list[str]:
    done = CliRunner().invoke(cli.app, ["clean", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


@pytest.mark.usefixtures("litter")
def test_a_dry_run_tells_what_would_be_removed_and_removes_nothing() -> None:
    for _ in range(2):
        gpu, *lines = clean("--dry-run")
        assert gpu.startswith("would be taken back: GPU-0 (GPU 0 is set aside since")
        assert lines == ["would remove container casebook-1"]
    assert hardware.why_aside("GPU-0")


@pytest.mark.usefixtures("litter")
def test_it_tells_what_clean_then_does() -> None:
    told = [line.replace("would remove", "removed").replace("would be taken", "taken") for line in clean("--dry-run")]
    assert clean() == told
    assert clean() == clean("--dry-run") == ["nothing to remove"]


class Hoarding(FakeEngine):
    """Keeps an environment besides those that are wanted."""

    there = True
    wanted: Sequence[Recipe] = ()

    def discard_unused(self, wanted: Iterable[Recipe], *, dry_run: bool = False) -> Sequence[str]:
        self.wanted = list(wanted)
        found = ["environment 1a2b"] if self.there else []
        self.there = self.there and dry_run
        return found


def test_environments_that_no_case_uses_go_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Hoarding({})
    monkeypatch.setattr(choosing, "reachable", lambda _root: [engine])
    assert clean() == ["nothing to remove"]
    assert clean("--unused", "--dry-run") == ["would remove environment 1a2b"]
    assert set(recipes(find(ROOT, "rwkv6-backward", known_images(ROOT)))) <= set(engine.wanted)
    assert clean("--unused") == ["removed environment 1a2b"]
    assert clean("--unused") == ["nothing to remove"]
