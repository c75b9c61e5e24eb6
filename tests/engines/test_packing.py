"""What engines pack for a host without a network, and how it is taken in there."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebook_rootless.charliecloud import CharliecloudEngine
from gpu_casebook.daemon import client as module
from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.engines.docker import packing
from gpu_casebook.engines.venv import packing as venv_packing
from gpu_casebook.errors import CasebookError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import build


def test_uv_is_left_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.setitem(os.environ, name, "https://index.example/simple")
    venv_packing.take_in(tmp_path)
    assert not [name for name, value in os.environ.items() if "index.example" in value]
    assert (os.environ["UV_OFFLINE"], os.environ["UV_NO_INDEX"]) == ("1", "1")
    assert os.environ["UV_FIND_LINKS"] == str(tmp_path / "locked")


class Tiny:
    """Images of an engine with a file each, one lying on the other; they go with the test."""

    def __init__(self, client: DockerClient) -> None:
        self.client = client
        self.names = [f"casebook-test/{part}:{os.getpid()}" for part in ("below", "above")]
        self._build(self.names[0], "FROM scratch", 200_000)
        self._build(self.names[1], f"FROM {self.names[0]}", 100)

    def _build(self, name: str, first: str, size: int) -> None:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path, data in (("Dockerfile", f"{first}\nCOPY data /{size}\n".encode()), ("data", os.urandom(size))):
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        content.seek(0)
        self.client.images.build(fileobj=content, custom_context=True, tag=name, rm=True)

    def facts(self) -> list[ImageFacts]:
        found = [module.find_image(self.client, name) for name in self.names]
        return [each for each in found if each]

    def remove(self, *names: str) -> None:
        for name in names:
            with module.only_if_present():
                self.client.api.remove_image(name)


@pytest.fixture
def tiny(docker_client: DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiny]:
    images = Tiny(docker_client)
    names = images.names[::-1]
    monkeypatch.setattr(build, "build_all", lambda *_: images.facts())
    yield images
    images.remove(*names)


@pytest.mark.docker
def test_images_travel_from_engine_to_engine(tiny: Tiny, tmp_path: Path) -> None:
    """Saved, removed, and loaded again."""
    before = tiny.facts()
    assert [image for image, _ in packing.pack(tiny.client, tmp_path, [], tmp_path, print, has=())] == before
    assert 200_000 < (tmp_path / packing.IMAGES).stat().st_size < 300_000  # what both lie on is in it once
    tiny.remove(*reversed(tiny.names))
    assert tiny.facts() == []
    packing.take_in(tiny.client, tmp_path, print)
    assert tiny.facts() == before
    with pytest.raises(CasebookError, match="could not save casebook-test/none:1"):
        list(module.save(tiny.client, ["casebook-test/none:1"]))
    with pytest.raises(CasebookError, match="could not load the images"):
        module.load(tiny.client, [b"no image"])


@pytest.mark.docker
def test_the_same_image_gives_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    tiny.names = tiny.names[::-1][:1]
    packed = []
    for _ in range(2):
        packing.pack(tiny.client, tmp_path, [], tmp_path, print, has=())
        packed.append((tmp_path / packing.IMAGES).read_bytes())
    assert packed[0] == packed[1]


@pytest.mark.docker
def test_layers_that_the_host_has_stay_here(tiny: Tiny, tmp_path: Path) -> None:
    before = tiny.facts()
    (_, has), (_, above) = packing.pack(tiny.client, tmp_path, [], tmp_path, print, has=())
    assert above[: len(has)] == has
    packing.pack(tiny.client, tmp_path, [], tmp_path, print, has=has)
    assert (tmp_path / packing.IMAGES).stat().st_size < 10_000
    tiny.remove(tiny.names[1])
    packing.take_in(tiny.client, tmp_path, print)
    assert tiny.facts() == before
    tiny.remove(*reversed(tiny.names))
    with pytest.raises(CasebookError, match="could not load the images"):
        packing.take_in(tiny.client, tmp_path, print)


def test_a_chain_is_what_the_engine_makes_of_it() -> None:
    """The example of the image specification: what a layer lies on is part of what it is known by."""
    first, second = packing.chains(["sha256:a", "sha256:b"])
    assert first == "sha256:a"
    assert second == f"sha256:{hashlib.sha256(b'sha256:a sha256:b').hexdigest()}"
    assert list(packing.chains(["sha256:b"])) == ["sha256:b"]


@pytest.mark.docker
def test_images_travel_to_an_engine_that_unpacks_them(tiny: Tiny, tmp_path: Path) -> None:
    packing.pack(tiny.client, tmp_path, [], tmp_path, print, has=())
    engine = CharliecloudEngine(tmp_path, tmp_path / "store", tmp_path / "scratch")
    engine.take_in(tmp_path, print)
    assert [engine.image_id(image.name) for image in tiny.facts()] == [image.id for image in tiny.facts()]
    assert sorted(path.name for path in (tmp_path / "store").glob("*/root/[0-9]*")) == ["100", "200000", "200000"]
