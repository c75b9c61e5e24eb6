"""What engines pack for a host without a network, and how it is taken in there."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from gpu_casebook.daemon import client as module
from gpu_casebook.daemon.client import DockerClient
from gpu_casebook.engines.docker import packing
from gpu_casebook.engines.venv import packing as venv_packing
from gpu_casebook.errors import CasebookError


def test_blocks_are_compressed_apart_and_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PIECE", 1000)
    pieces = [bytes([number]) * 700 for number in range(40)]
    for name in ("one", "two"):
        packing.squeeze(iter(pieces), tmp_path / name, print)
    assert gzip.decompress((tmp_path / "one").read_bytes()) == b"".join(pieces)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_uv_is_left_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.setitem(os.environ, name, "https://index.example/simple")
    venv_packing.take_in(tmp_path)
    assert not [name for name, value in os.environ.items() if "index.example" in value]
    assert (os.environ["UV_OFFLINE"], os.environ["UV_NO_INDEX"]) == ("1", "1")
    assert os.environ["UV_FIND_LINKS"] == str(tmp_path / "locked")


@pytest.mark.docker
def test_images_travel_from_engine_to_engine(docker_client: DockerClient, tmp_path: Path) -> None:
    """Saved, removed, and loaded again; and the same images give the same bytes."""
    client = docker_client
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
        packing.squeeze([saved], tmp_path / packing.IMAGES, print)
        packing.take_in(tmp_path, print)
        assert module.find_image(client, name) == before
        with pytest.raises(CasebookError, match="could not save casebook-test/none:1"):
            list(module.save(client, ["casebook-test/none:1"]))
        with pytest.raises(CasebookError, match="could not load the images"):
            module.load(client, [b"no image"])
    finally:
        client.api.remove_image(name)
