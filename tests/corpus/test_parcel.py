import io
import tarfile
from pathlib import Path

import pytest

from gpu_casebook.corpus.parcel import pack, unpack


@pytest.fixture
def root(tmp_path: Path) -> Path:
    case = tmp_path / "here" / "cases" / "tiny"
    (case / "locks").mkdir(parents=True)
    (case / "locks" / "current.txt").write_text("numpy==1\n")
    (case / "repro.py").write_text("print(1)\n")
    (case / "data.bin").write_bytes(bytes(range(256)))
    (case / "fixed.py").symlink_to("repro.py")
    (case / "__pycache__").mkdir()
    (case / "__pycache__" / "repro.pyc").touch()
    (case.parent / "other").mkdir()
    return tmp_path / "here"


def test_a_case_arrives_as_it_was(root: Path, tmp_path: Path) -> None:
    unpack(pack(root, ["cases/tiny"]), tmp_path / "there")
    arrived = tmp_path / "there" / "cases" / "tiny"
    assert {path.relative_to(arrived).as_posix() for path in arrived.rglob("*")} == {
        "locks",
        "locks/current.txt",
        "repro.py",
        "fixed.py",
        "data.bin",
    }
    assert (arrived / "data.bin").read_bytes() == bytes(range(256))
    assert (arrived / "fixed.py").read_text() == "print(1)\n"
    assert [path.name for path in (tmp_path / "there" / "cases").iterdir()] == ["tiny"]


def test_nothing_of_this_machine_travels(root: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(root, ["cases/tiny"]))) as archive:
        entries = archive.getmembers()
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "", "")}
    assert not any(str(root) in entry.name for entry in entries)


def test_a_case_that_is_gone(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(root, ["cases/gone"])


def test_nothing_is_laid_out_elsewhere(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(tarfile.TarError):
        unpack(packed.getvalue(), tmp_path / "there")
    assert not (tmp_path / "outside").exists()
