from pathlib import Path

import pytest

from gpu_casebook.bundle import wheels
from gpu_casebook.bundle.pack import Wish
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.trial import EngineName, Note
from tests.conftest import IMAGES, Checkout
from tests.fakes import LOCK


@pytest.fixture
def case(checkout: Checkout) -> Case:
    directory = checkout.write().parent
    (directory / "locks").mkdir()
    for environment in ("current", "interpreter"):
        (directory / "locks" / f"{environment}.txt").write_text(LOCK)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def wish(case: Case) -> Wish:
    """The host has the image."""
    return Wish(case=case, environment="interpreter", engine=EngineName.DOCKER, image="host/image:1", pythons=["3.12"])


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels are files that say what was asked for."""

    def pins(wanted: list[str], python: str, into: Path, _note: Note) -> list[Path]:
        into.mkdir(parents=True, exist_ok=True)
        for pin in wanted:
            kind = f"cp{python.replace('.', '')}" if pin.startswith("pydantic-core") else "py3"
            (into / f"{pin.replace('==', '-')}-{kind}-none-any.whl").write_text(pin)
        return sorted(into.glob("*.whl"))

    def lock(path: Path, python: str, into: Path, _note: Note) -> list[Path]:
        return pins([f"{path.stem}-{python}==1"], python, into, _note)

    monkeypatch.setattr(wheels, "download_pins", pins)
    monkeypatch.setattr(wheels, "download_lock", lock)
