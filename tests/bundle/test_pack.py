import getpass
import hashlib
import os
import socket
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from casebook_workbench.bundle import pack as packing
from casebook_workbench.bundle.document import Bundle, Image
from casebook_workbench.bundle.pack import PackOptions, pack
from casebook_workbench.corpus.selection import Selection
from failure_signature.kinds import Variant
from gpu_casebook import __version__, trial
from gpu_casebook.engines.base import Packed
from gpu_casebook.engines.venv.engine import VenvEngine
from gpu_casebook.errors import CasebookError, ManifestError, UsageError
from gpu_casebook.guest import starter
from gpu_casebook.manifest.case import Case
from gpu_casebook.revision import CHECKOUT
from gpu_casebook.trial import Note, Recipe
from tests.bundle.conftest import Daemon
from tests.conftest import MANIFEST, PLAIN, Checkout, write_locks

pytestmark = pytest.mark.usefixtures("no_index")


def unpacked(path: Path, into: Path) -> Path:
    with tarfile.open(path) as archive:
        archive.extractall(into, filter="data")
    return into / starter.NAME


@pytest.fixture
def packed(checkout: Checkout, options: PackOptions, tmp_path: Path) -> Path:
    path = tmp_path / "out" / "x.casebook.tar"
    pack(checkout.root, options, None, path, print)
    return path


def test_what_is_unpacked_verifies_and_is_listed(packed: Path, case: Case, tmp_path: Path) -> None:
    home = unpacked(packed, tmp_path / "there")
    members = starter.verify(home)["members"]
    listed = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert set(members) | {starter.LIST} == listed
    bundle = Bundle.read(home / starter.LIST)
    assert ([job.name for job in bundle.jobs], bundle.engine) == (["tiny/interpreter"], "docker")
    assert (bundle.images, bundle.named_image, bundle.packed_images) == (
        [Image(name="host/image:1")],
        "host/image:1",
        [],
    )
    assert bundle.digests == {"tiny": case.digest()}


def test_case_images_and_runner_are_laid_out_as_a_checkout(packed: Path, case: Case, tmp_path: Path) -> None:
    checkout = unpacked(packed, tmp_path / "there") / "checkout"
    assert (checkout / "runner" / "casebook_rootless" / "pyproject.toml").is_file()  # --engine charliecloud there
    for name in ("case.yaml", "repro.py", "fixed.py", "locks/interpreter.txt"):
        assert (checkout / "cases" / "tiny" / name).read_bytes() == (case.directory / name).read_bytes()
    assert (checkout / "images" / "cpu" / "Dockerfile").is_file()
    assert (checkout / "runner" / "gpu_casebook" / "trial.py").read_bytes() == Path(trial.__file__).read_bytes()
    assert (checkout / "runner" / "REVISION").read_text().startswith(__version__)
    assert (checkout / "pyproject.toml").read_bytes() == (
        CHECKOUT / "pyproject.toml"
    ).read_bytes()  # which has the verbs


def test_the_same_input_gives_the_same_bytes(
    packed: Path, checkout: Checkout, options: PackOptions, tmp_path: Path
) -> None:
    os.utime(checkout.root / "cases" / "tiny" / "repro.py", (1, 1))
    again = tmp_path / "again.tar"
    pack(checkout.root, options, None, again, print)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(packed.read_bytes()).digest()


def test_nothing_in_it_tells_of_this_machine(packed: Path, checkout: Checkout) -> None:
    with tarfile.open(packed) as archive:
        for entry in archive:
            assert (entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, "", "")
            assert entry.mode in {0o644, 0o755}
            assert entry.name.startswith(f"{starter.NAME}/")
        assert {entry.mtime for entry in archive} == {packing._EPOCH}
    everything = packed.read_bytes()
    here = [str(checkout.root), str(CHECKOUT)]
    names = [name for name in (str(Path.home()), getpass.getuser(), socket.gethostname()) if len(name) > 5]
    for text in (*here, *names):
        assert text.encode() not in everything
    assert b"__pycache__/" not in everything


def test_compiled_python_stays_here(checkout: Checkout, case: Case, options: PackOptions, tmp_path: Path) -> None:
    cache = case.directory / "__pycache__"
    cache.mkdir()
    (cache / "repro.cpython-311.pyc").write_text(str(tmp_path))
    bundle = pack(checkout.root, options, None, tmp_path / "x.tar", print)
    assert not [name for name in bundle.members if "pyc" in name]


def test_links_are_packed_as_files(checkout: Checkout, case: Case, options: PackOptions, tmp_path: Path) -> None:
    script = case.directory / "repro.py"
    os.link(script, script.with_name("hard.py"))
    pack(checkout.root, options, None, tmp_path / "x.tar", print)
    with tarfile.open(tmp_path / "x.tar") as archive:
        assert all(entry.isreg() for entry in archive)


def test_for_two_pythons_what_fits_both_is_packed_once(
    checkout: Checkout, options: PackOptions, tmp_path: Path
) -> None:
    bundle = pack(checkout.root, replace(options, pythons=["3.11", "3.12"]), None, tmp_path / "x.tar", print)
    first, second = (set(bundle.pythons[python]) for python in ("3.11", "3.12"))
    assert {name.split("-")[0] for name in first ^ second} == {"wheels/pydantic"}
    assert {name for name in bundle.members if name.startswith("wheels/")} == first | second


def test_with_an_image_uv_stays_here(checkout: Checkout, options: PackOptions, tmp_path: Path) -> None:
    bundle = pack(checkout.root, options, None, tmp_path / "x.tar", print)
    names = {Path(name).name.partition("-")[0] for name in bundle.pythons["3.12"]}
    assert "uv" not in names
    assert {"docker", "typer", "requests"} <= names


def test_for_venv_the_locks_wheels_and_uv_go_along(checkout: Checkout, options: PackOptions, tmp_path: Path) -> None:
    options = replace(options, engine="venv", image=None)
    bundle = pack(checkout.root, options, VenvEngine(tmp_path, tmp_path), tmp_path / "x.tar", print)
    assert "locked/tiny.interpreter-3.11-1-py3-none-any.whl" in bundle.members
    assert any(name.startswith("wheels/uv-") for name in bundle.pythons["3.12"])


def test_images_go_along(checkout: Checkout, options: PackOptions, tmp_path: Path) -> None:
    bundle = pack(checkout.root, replace(options, image=None), Daemon(), tmp_path / "x.tar", print)
    assert bundle.packed_images == [
        Image(name="casebook/cpu:1", id="sha256:1", layers=["sha256:below", "sha256:above"])
    ]
    assert not bundle.left_out
    assert (unpacked(tmp_path / "x.tar", tmp_path / "there") / "image").read_bytes() == b"layers"


def test_what_several_need_is_packed_once(checkout: Checkout, case: Case, tmp_path: Path) -> None:
    other = checkout.write(MANIFEST.replace("id: tiny", "id: other"), name="other").parent
    write_locks(other)
    jobs, on = packing.chosen(checkout.root, Selection(environment=["*"])), Daemon()
    assert [job.name for job in jobs] == ["other/current", "other/interpreter", "tiny/current", "tiny/interpreter"]
    options = PackOptions(jobs=jobs, engine="docker", pythons=["3.12"], host_has={"sha256:below"})
    bundle = pack(checkout.root, options, on, tmp_path / "x.tar", print)
    assert list(on.packed) == ["other.current.txt", "other.interpreter.txt"]
    assert set(bundle.digests) == {"other", "tiny"}
    assert {f"checkout/cases/{name}/case.yaml" for name in bundle.digests} < set(bundle.members)
    assert (bundle.left_out, bundle.name) == (True, "other.current+3")


def test_without_a_name_it_is_each_cases_first_environment(checkout: Checkout, case: Case) -> None:
    checkout.write(PLAIN, name="plain")
    jobs = packing.chosen(checkout.root, Selection())
    assert [job.name for job in jobs] == ["plain/one", "tiny/current"]


def test_a_manifest_that_is_wrong_is_named(checkout: Checkout, case: Case) -> None:
    checkout.write("id: broken", name="broken")
    with pytest.raises(CasebookError, match=r"broken: .*case.yaml:1"):
        packing.chosen(checkout.root, Selection())


def test_without_a_lock_it_says_how_to_write_it(
    checkout: Checkout, case: Case, options: PackOptions, tmp_path: Path
) -> None:
    case.lock_path("interpreter", Variant.REPRO).unlink()
    with pytest.raises(ManifestError, match="nox -s lock -- tiny"):
        pack(checkout.root, options, None, tmp_path / "x.tar", print)


def test_what_fails_leaves_nothing(checkout: Checkout, options: PackOptions, tmp_path: Path) -> None:
    class Broken(Daemon):
        def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note, has: Collection[str]) -> Packed:
            super().pack(recipes, into, note, has)
            raise UsageError("the engine went away")

    into = tmp_path / "out" / "x.tar"
    with pytest.raises(UsageError, match="went away"):
        pack(checkout.root, options, Broken(), into, print)
    assert list(into.parent.iterdir()) == []
