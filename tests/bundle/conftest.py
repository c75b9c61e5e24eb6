from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from casebook_workbench.bundle.pack import PackOptions, chosen
from casebook_workbench.corpus.selection import Selection
from failure_signature.result import TrialResult
from gpu_casebook.engines.base import Packed
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.manifest.case import Case, find
from gpu_casebook.packages import wheels
from gpu_casebook.trial import Note, Recipe
from tests.conftest import IMAGES, Checkout, write_locks
from tests.fakes import FIXED, REPRO, FakeEngine


class Daemon(FakeEngine):
    """A Docker engine with these images, which packs one and takes in `brings`."""

    name = "docker"
    has_images = True

    def __init__(self, ends: dict[str, Sequence[TrialResult]] | None = None) -> None:
        super().__init__(ends or {"repro.py": [REPRO], "fixed.py": [FIXED]})
        self.images = {"host/image:1", "other:2"}
        self.brings = {"casebook/cpu:1"}
        self.loaded = b""
        self.packed: Mapping[str, Recipe] = {}

    def image_id(self, name: str) -> str | None:
        return "sha256:1" if name in self.images else None

    def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note, has: Collection[str]) -> Packed:
        self.packed = dict(recipes)
        (into / "image").write_bytes(b"layers")
        return [(ImageFacts(name="casebook/cpu:1", id="sha256:1", size_bytes=1), ["sha256:below", "sha256:above"])]

    def take_in(self, packed: Path, note: Note) -> None:
        self.loaded = (packed / "image").read_bytes()
        self.images |= self.brings


@pytest.fixture
def case(checkout: Checkout) -> Case:
    directory = checkout.write().parent
    write_locks(directory)
    return find(checkout.root, "tiny", IMAGES)


@pytest.fixture
def options(case: Case, checkout: Checkout) -> PackOptions:
    """The host has the image."""
    jobs = chosen(checkout.root, Selection(environment=["interpreter"]))
    return PackOptions(jobs=jobs, engine="docker", image="host/image:1", pythons=["3.12"])


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
