"""Locks with builds that only PyTorch's own index has: where they are locked and installed from."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from gpu_casebook.errors import BuildError
from gpu_casebook.packages import index as builds
from gpu_casebook.packages import uv, wheels
from gpu_casebook.packages.lock import read_lock, wheel_bytes
from gpu_casebook.packages.resolve import lock_text, scratch_lock
from gpu_casebook.pins import Special
from gpu_casebook.trial import PYTHON, Recipe
from tests.packages.conftest import Index, dead_index, wheel

CPU = Special(indexes=("pytorch-cpu",))
WANTED = ["torch==2.0+cpu", "app==1.0"]
AWAY = (
    r"the index pytorch-cpu can't be reached, and no directory of wheels has torch 2\.0\+cpu: "
    r"name one that has it in UV_FIND_LINKS, or a mirror as UV_INDEX=pytorch-cpu=ADDRESS"
)


@pytest.fixture
def torch(index: Index, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The CPU build's wheel, on a mirror; the package index has the release, and a package that needs it."""
    index.add("torch", "2.0")
    index.add("app", "1.0", "torch>=2")
    index.list(wheel(index.root / "files/mirror", "torch", "2.0+cpu", tag="py3-none-win_amd64"), "mirror")
    monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={index.url}/mirror")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    return index.add("torch", "2.0+cpu", to="mirror")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class TestLock:
    def test_has_the_build_that_fits_and_the_name_of_its_index(self, torch: Path, index: Index) -> None:
        text = lock_text(WANTED, "3.11", special=CPU)
        assert "# index: pytorch-cpu\n" in text
        assert f"\ntorch==2.0+cpu \\\n    --hash=sha256:{digest(torch)}\n" in text
        assert index.url not in text
        assert (
            wheel_bytes(text)
            == sum(path.stat().st_size for path in index.root.glob("files/*/*-none-any.whl"))
            - (index.root / "files/simple/torch-2.0-py3-none-any.whl").stat().st_size
        )

    def test_is_the_same_from_a_directory_and_says_so(
        self, torch: Path, index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        public, said = lock_text(WANTED, "3.11", special=CPU), list[str]()
        monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={dead_index()}")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))
        monkeypatch.setenv("UV_FIND_LINKS", str(torch.parent))
        assert lock_text(WANTED, "3.11", special=CPU, say=said.append) == public
        assert said == [
            f"the index pytorch-cpu can't be reached: hashes are those of {torch.parent}, not compared with its own"
        ]
        assert lock_text(WANTED, "3.11", public, special=CPU, say=said.append) == public
        assert len(said) == 1, "the lock before has that hash"

    def test_where_it_is_nowhere_one_line_says_what_to_do(
        self, torch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={dead_index()}")
        monkeypatch.setenv("UV_FIND_LINKS", str(wheel(tmp_path / "others", "torch", "2.1+cpu").parent))
        for lock in (lock_text, scratch_lock):
            with pytest.raises(builds.UnreachableError, match=f"^{AWAY}$"):
                lock(WANTED, "3.11", special=CPU)

    @pytest.mark.usefixtures("torch")
    def test_the_package_index_that_is_away_is_another_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UV_DEFAULT_INDEX", dead_index())
        with pytest.raises(builds.UnreachableError, match=r"^the package index can't be reached"):
            lock_text(["app==1.0"], "3.11", special=CPU)

    @pytest.mark.usefixtures("torch")
    def test_without_its_name_the_index_is_not_asked(self) -> None:
        with pytest.raises(BuildError, match=r"no version of torch==2\.0\+cpu"):
            lock_text(WANTED, "3.11")

    @pytest.mark.usefixtures("torch")
    def test_the_newest_is_the_newest_build(self) -> None:
        assert "\ntorch==2.0+cpu \\\n" in scratch_lock(["app", "torch"], "3.11", special=CPU)

    @pytest.mark.usefixtures("torch")
    def test_a_variant_that_pins_no_build_has_the_release(self) -> None:
        assert "\ntorch==2.0 \\\n" in lock_text(["app==1.0", "torch==2.0"], "3.11", special=CPU)


class TestInstall:
    @pytest.fixture
    def lock(self, torch: Path) -> str:
        del torch
        return lock_text(WANTED, PYTHON, special=CPU)

    def installed(self, lock: str, place: Path) -> list[str]:
        """Install a lock; return the packages, with the text that the index has put into each."""
        log, store = place / "log", place / "store"
        uv.make(place / "env", python=PYTHON, store=store, log=log, note=lambda _line: None)
        uv.install(place / "env", Recipe(image="cpu", lock=lock), store=store, log=log, note=lambda _line: None)
        return sorted(path.stem for path in place.glob("env/lib/*/site-packages/*.dist-info"))

    def test_from_the_index(self, lock: str, tmp_path: Path) -> None:
        assert self.installed(lock, tmp_path) == ["app-1.0", "torch-2.0+cpu"]

    def test_from_a_directory_that_has_it_by_its_hash(
        self, lock: str, torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={dead_index()}")
        own = wheel(tmp_path / "own", "torch", "2.0+cpu", content="changed = True")
        monkeypatch.setenv("UV_FIND_LINKS", str(own.parent))
        with pytest.raises(
            builds.UnreachableError, match=rf"^the environment could not be built: {AWAY} \(the whole log: "
        ):
            self.installed(lock, tmp_path / "changed")
        monkeypatch.setenv("UV_FIND_LINKS", f"{own.parent},{torch.parent}")
        monkeypatch.delenv("UV_INDEX")
        assert self.installed(lock, tmp_path) == ["app-1.0", "torch-2.0+cpu"]
        assert [path.name for path in builds.wheels(lock, {"UV_FIND_LINKS": str(torch.parent)})] == [torch.name]
        assert builds.wheels(lock, {"UV_FIND_LINKS": str(own.parent)}) == []

    def test_without_a_mirror_uv_knows_the_index(self, lock: str) -> None:
        assert builds.installing(lock, {})["UV_TORCH_BACKEND"] == "cpu"
        assert "UV_TORCH_BACKEND" not in builds.installing(lock, {"UV_INDEX": "pytorch-cpu=https://mirror.test/"})

    @pytest.mark.parametrize("variable", ["UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL"])
    def test_a_lock_just_written_installs_whatever_is_configured(
        self, torch: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.delenv("UV_INDEX")
        monkeypatch.setenv(variable, str(torch.parent) if "LINKS" in variable else f"{index.url}/mirror")
        monkeypatch.setenv("UV_TORCH_BACKEND", "cu130")
        assert self.installed(lock_text(["app==1.0", "torch==2.0"], PYTHON), tmp_path) == ["app-1.0", "torch-2.0"]


class TestBundle:
    def fetched(self, lock: str, place: Path) -> list[str]:
        file = place / "lock.txt"
        file.write_text(lock, encoding="utf-8")
        return [path.name for path in wheels.download_lock(file, PYTHON, place / "into", lambda _line: None)]

    @pytest.mark.parametrize("local", [False, True])
    def test_its_wheels_are_packed_wherever_they_come_from(
        self, torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, local: bool
    ) -> None:
        lock = lock_text(["torch==2.0+cpu"], PYTHON, special=CPU)
        if local:
            monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={dead_index()}")
            monkeypatch.setenv("UV_FIND_LINKS", str(torch.parent))
        assert self.fetched(lock, tmp_path) == [torch.name]

    def test_where_it_is_nowhere_one_line_says_what_to_do(
        self, torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del torch
        lock = lock_text(["torch==2.0+cpu"], PYTHON, special=CPU)
        monkeypatch.setenv("UV_INDEX", f"pytorch-cpu={dead_index()}")
        with pytest.raises(builds.UnreachableError, match=f"^{AWAY}$"):
            self.fetched(lock, tmp_path)


def test_pip_and_uv_take_exactly_what_is_pinned(torch: Path, tmp_path: Path) -> None:
    """What `lock.exactly` rests on: a build is as good as its release by ==, and not by ===."""
    command = [uv.program(), "pip", "compile", "--quiet", "--no-index", "--find-links", str(torch.parent), "-"]
    for operator, found in (("==", "torch==2.0+cpu"), ("===", "")):
        ended = subprocess.run(
            command, input=f"torch{operator}2.0", cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert [line for line in ended.stdout.splitlines() if "==" in line] == [found] * bool(found)


def test_a_build_of_this_machine_is_none_of_the_index() -> None:
    text = f"torch==2.0+cpu --hash=sha256:{'a' * 64}\n"
    assert builds.pinned(text) == {}
    assert builds.installing(text, {"UV_TORCH_BACKEND": "cu130"}) == {"UV_TORCH_BACKEND": "cu130"}
    assert [each.version for each in read_lock(text).pins] == ["2.0+cpu"]
