import gzip
import io
import os
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from gpu_casebook.bundle import there
from gpu_casebook.bundle.document import Returned
from gpu_casebook.bundle.pack import IMAGES, Saved, Wish, pack
from gpu_casebook.console import Console
from gpu_casebook.daemon import client as module
from gpu_casebook.daemon.client import connect
from gpu_casebook.errors import CasebookError, MachineError
from gpu_casebook.evidence import ImageFacts, Verdict
from gpu_casebook.guest import starter
from gpu_casebook.run.plan import Options
from gpu_casebook.trial import EngineName, TrialResult
from tests.conftest import Checkout
from tests.fakes import FIXED, REPRO, FakeEngine

pytestmark = pytest.mark.usefixtures("no_index")

PASSED = TrialResult(stdout="rel_err=0\n", stderr="", duration_s=0.1, exit_status=0)


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run changes in here is put back."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    on = FakeEngine({"repro.py": [REPRO], "fixed.py": [FIXED]})
    monkeypatch.setattr(there, "choose", lambda *_: on)
    return on


class FakeDaemon:
    """An engine with these images, which takes in `brings`."""

    def __init__(self, images: Sequence[str], brings: Sequence[str] = ()) -> None:
        self.images = set(images)
        self.brings = brings
        self.loaded = b""

    def find_image(self, _client: object, name: str) -> ImageFacts | None:
        return ImageFacts(name=name, id="sha256:1", size_bytes=1) if name in self.images else None

    def load(self, _client: object, pieces: Iterable[bytes]) -> None:
        self.loaded = b"".join(pieces)
        self.images |= set(self.brings)

    def close(self) -> None:
        pass


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    made = FakeDaemon(["host/image:1", "other:2"], ["casebook/cpu:1"])
    monkeypatch.setattr(module, "connect", lambda *_: made)
    monkeypatch.setattr(module, "find_image", made.find_image)
    monkeypatch.setattr(module, "load", made.load)
    return made


def laid_out(checkout: Checkout, wish: Wish, into: Path, saved: Saved | None = None) -> Path:
    into.mkdir()
    pack(checkout.root, wish, saved, into / "x.casebook.tar", print)
    return starter.opened([into / "x.casebook.tar"])


@pytest.fixture
def home(checkout: Checkout, wish: Wish, tmp_path: Path) -> Path:
    return laid_out(checkout, wish, tmp_path / "there")


def run(home: Path, options: Options | None = None) -> tuple[Returned, Path, str]:
    said = io.StringIO()
    returned, path = there.run(home, options or Options(), Console(said))
    return returned, path, said.getvalue()


@pytest.mark.usefixtures("daemon")
def test_the_verdict_comes_back_in_one_file(home: Path, engine: FakeEngine) -> None:
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
    assert os.environ["UV_OFFLINE"] == "1"


@pytest.mark.usefixtures("daemon")
def test_any_verdict_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeEngine({"repro.py": [PASSED], "fixed.py": [FIXED]})
    monkeypatch.setattr(there, "choose", lambda *_: fake)
    assert run(home)[0].verdict.exit_status == Verdict.NOT_REPRODUCED.exit_status


@pytest.mark.usefixtures("daemon")
def test_the_runner_names_what_it_was_packed_from(home: Path, engine: FakeEngine) -> None:
    returned = run(home)[0]
    assert (home / "checkout" / "runner" / "REVISION").read_text() == f"{returned.bundle.runner}\n"


@pytest.mark.usefixtures("daemon")
def test_options_reach_the_run(home: Path, engine: FakeEngine) -> None:
    returned = run(home, Options(trials=1, image="other:2", probes=False))[0]
    assert returned.evidence
    assert len(returned.evidence.trials) == 2
    assert engine.recipes[0].use_image == "other:2"
    assert "--environment interpreter" in returned.evidence.command
    assert "--image other:2" in returned.evidence.command


@pytest.mark.usefixtures("daemon")
def test_what_can_not_run_there_comes_back_with_its_reason(
    checkout: Checkout, wish: Wish, tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_casebook.devices.hardware.gpus", list)
    on_gpu = Wish(case=wish.case, environment="current", engine=EngineName.DOCKER, image="other:2", pythons=["3.12"])
    returned, path, said = run(laid_out(checkout, on_gpu, tmp_path / "gpu"))
    assert returned.verdict.exit_status == Verdict.SKIPPED.exit_status
    assert Returned.read(path).skipped == ["current: 1 GPU is needed, and there is none"]
    assert "tiny: skipped" in said


@pytest.mark.usefixtures("engine")
def test_an_image_that_the_host_lacks_is_never_pulled(home: Path, daemon: FakeDaemon) -> None:
    daemon.images.clear()
    with pytest.raises(MachineError, match="has no image host/image:1, and there is no network to pull it from"):
        run(home)


class TestPackedImage:
    @pytest.fixture
    def home(self, checkout: Checkout, wish: Wish, tmp_path: Path) -> Path:
        saved = Saved([ImageFacts(name="casebook/cpu:1", id="sha256:1", size_bytes=1)], [b"image", b" layers"])
        bare = Wish(case=wish.case, environment="interpreter", engine=EngineName.DOCKER, pythons=["3.12"])
        return laid_out(checkout, bare, tmp_path / "image", saved)

    def test_it_is_loaded_and_used_as_built(self, home: Path, daemon: FakeDaemon, engine: FakeEngine) -> None:
        said = run(home)[2]
        assert daemon.loaded == b"image layers"
        assert engine.recipes[0].use_image is None
        assert "loading the bundle's image ..." in said

    @pytest.mark.usefixtures("engine")
    def test_not_where_it_is_already(self, home: Path, daemon: FakeDaemon) -> None:
        daemon.images.add("casebook/cpu:1")
        run(home)
        assert daemon.loaded == b""

    @pytest.mark.usefixtures("engine")
    def test_not_where_another_is_named(self, home: Path, daemon: FakeDaemon) -> None:
        run(home, Options(image="other:2"))
        assert daemon.loaded == b""

    @pytest.mark.usefixtures("engine")
    def test_an_engine_that_does_not_take_it_is_one_line(self, home: Path, daemon: FakeDaemon) -> None:
        daemon.brings = ()
        with pytest.raises(MachineError, match="has no image casebook/cpu:1"):
            run(home)


@pytest.mark.usefixtures("daemon", "engine")
def test_a_case_with_a_file_more_is_not_run(home: Path) -> None:
    (home / "checkout" / "cases" / "tiny" / "helper.py").write_text("")
    with pytest.raises(CasebookError, match="tiny: the case is not as it was packed"):
        run(home)


def test_uv_is_left_no_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.setitem(os.environ, name, "https://index.example/simple")
    there.offline(home)
    assert not [name for name, value in os.environ.items() if "index.example" in value]
    assert (os.environ["UV_OFFLINE"], os.environ["UV_NO_INDEX"]) == ("1", "1")
    assert os.environ["UV_FIND_LINKS"] == str(home / "locked")


def test_only_the_bundles_own_runner_runs_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not there.is_its_own(home)
    monkeypatch.setattr(there, "CHECKOUT", home / "checkout")
    assert there.is_its_own(home)


@pytest.mark.usefixtures("tmp_path")
def test_a_broken_list_is_one_line(home: Path) -> None:
    text = (home / starter.LIST).read_text()
    (home / starter.LIST).write_text(text.replace('"engine": "docker"', '"engine": "podman"'))
    with pytest.raises(
        CasebookError,
        match=r"bundle\.json: .*: engine: Input should be .*; copy the bundle again",
    ):
        run(home)


@pytest.mark.docker
def test_images_travel_from_engine_to_engine(tmp_path: Path) -> None:
    """Saved, removed, and loaded again; and the same images give the same bytes."""
    try:
        client = connect()
    except CasebookError as error:
        if os.environ.get("CASEBOOK_REQUIRE_DOCKER"):
            raise
        pytest.skip(str(error))
    repository, tag = "casebook-test/travel", str(os.getpid())
    name = f"{repository}:{tag}"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("marker"))
    (tmp_path / "root.tar").write_bytes(content.getvalue())
    client.api.import_image_from_file(
        str(tmp_path / "root.tar"), repository=name.split(":", maxsplit=1)[0], tag=name.split(":")[1]
    )
    try:
        saved = b"".join(module.save(client, [name]))
        assert b"".join(module.save(client, [name])) == saved
        before = module.find_image(client, name)
        client.api.remove_image(name)
        assert module.find_image(client, name) is None
        (tmp_path / IMAGES).write_bytes(gzip.compress(saved))
        module.load(client, there._pieces(tmp_path / IMAGES, print))
        assert module.find_image(client, name) == before
        with pytest.raises(CasebookError, match="could not save casebook-test/none:1"):
            list(module.save(client, ["casebook-test/none:1"]))
        with pytest.raises(CasebookError, match="could not load the images"):
            module.load(client, [b"no image"])
    finally:
        client.api.remove_image(name)
        client.close()
