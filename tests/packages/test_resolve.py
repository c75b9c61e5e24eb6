import hashlib
import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpu_casebook.errors import BuildError
from gpu_casebook.manifest.case import load
from gpu_casebook.packages import index as builds
from gpu_casebook.packages import resolve
from gpu_casebook.packages.lock import read_lock, wheel_bytes
from gpu_casebook.packages.resolve import lock_text, remove_stale, scratch_lock, write_locks
from gpu_casebook.pins import Special
from tests.conftest import IMAGES, MANIFEST, Checkout
from tests.fakes import LOCK
from tests.packages.conftest import Index, dead_index, point_uv_at, wheel


def sdist(directory: Path, name: str, ran: Path) -> Path:
    """A source distribution; `ran` is written by whatever runs it."""
    path = directory / f"{name}-1.0.tar.gz"
    setup = f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name={name!r}, version='1.0')\n"
    info = f"Metadata-Version: 1.0\nName: {name}\nVersion: 1.0\n"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in {"setup.py": setup, "PKG-INFO": info}.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def ignore(_line: str) -> None:
    """A note nobody reads."""


class TestLockText:
    def test_everything_with_hashes_and_nothing_of_this_machine(self, index: Index, tmp_path: Path) -> None:
        files = [index.add("app", "1.0", "dep>=1", "extra; python_version >= '3.13'"), index.add("dep", "1.5")]
        index.add("dep", "2.0")
        files[1] = tmp_path / "index/files/simple/dep-2.0-py3-none-any.whl"
        text = lock_text(["App==1.0"], "3.12")
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        size = sum(file.stat().st_size for file in files)
        assert text == (
            "# Written by `nox -s lock`, not by hand.\n"
            "# requirements: app==1.0\n"
            "# python: 3.12\n"
            "# platform: x86_64-manylinux_2_36\n"
            f"# download-bytes: {size}\n"
            f"app==1.0 \\\n    --hash=sha256:{digests[0]}\n"
            f"dep==2.0 \\\n    --hash=sha256:{digests[1]}\n"
        )
        assert wheel_bytes(text) == size

    def test_no_requirements_need_no_index(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        point_uv_at(monkeypatch, dead_index(), tmp_path)
        text = lock_text([], "3.11")
        assert read_lock(text) == ((), {"requirements": "", **DEFAULTS, "download-bytes": "0"}, ())

    def test_pins_of_the_lock_before_are_kept(self, index: Index) -> None:
        index.add("app", "1.0", "dep>=1")
        index.add("dep", "1.5")
        before = lock_text(["app==1.0"], "3.11")
        index.add("dep", "2.0")
        shutil.rmtree(index.root.parent / "uv-cache")
        assert lock_text(["app==1.0"], "3.11", before) == before
        assert "dep==2.0" in lock_text(["app==1.0"], "3.11")

    @pytest.mark.parametrize("variable", ["UV_FIND_LINKS", "PIP_FIND_LINKS"])
    def test_a_local_build_never_gets_in(
        self, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        public = index.add("app", "1.0")
        wheel(tmp_path / "wheels", "app", "1.0+cpu")
        monkeypatch.setenv(variable, str(tmp_path / "wheels"))
        assert hashlib.sha256(public.read_bytes()).hexdigest() in lock_text(["app==1.0"], "3.11")

    @pytest.mark.parametrize("variable", ["UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"])
    def test_a_build_of_another_index_never_gets_in(
        self, index: Index, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        public = index.add("app", "1.0")
        index.add("app", "1.0", to="other")
        index.add("app", "1.0+cu130", to="other")
        monkeypatch.setenv(variable, f"{index.url}/other")
        lock = lock_text(["app==1.0"], "3.11")
        assert hashlib.sha256(public.read_bytes()).hexdigest() in lock
        assert lock.count("--hash") == 1

    def test_a_file_of_this_machine_is_refused_wherever_it_came_from(
        self, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index.add("app", "1.0")
        wheel(tmp_path / "wheels", "app", "1.0+cpu", content="x = 1")
        (tmp_path / "uv.toml").write_text(f'find-links = ["{tmp_path / "wheels"}"]\n')
        monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
        monkeypatch.delenv("UV_NO_CONFIG")
        with pytest.raises(BuildError, match=r"^app==1\.0\+cpu comes from a file of this machine"):
            lock_text(["app==1.0"], "3.11")

    def test_a_version_that_does_not_exist(self, index: Index) -> None:
        index.add("app", "1.0")
        with pytest.raises(BuildError, match=r"^the requirements can't be locked: .*no version of app==2\.0") as caught:
            lock_text(["app==2.0"], "3.11")
        assert "\n" not in str(caught.value)

    def test_an_index_without_hashes(self, index: Index) -> None:
        path = index.add("app", "1.0", hashed=False)
        assert f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" in lock_text(["app==1.0"], "3.11")

    def test_a_lock_without_hashes_is_never_given_out(self) -> None:
        with pytest.raises(BuildError, match=r"^there is no hash for app, so it can't be locked$"):
            resolve._only_from_the_index("app==1.0\n", [])

    def test_an_unreachable_index(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        point_uv_at(monkeypatch, dead_index(), tmp_path)
        with pytest.raises(BuildError, match=r"^the package index can't be reached, so nothing was locked: ") as caught:
            lock_text(["app==1.0"], "3.11")
        assert "\n" not in str(caught.value)

    def test_a_package_without_its_dependencies(self, index: Index) -> None:
        index.add("app", "1.0", "dep>=1", "lib")
        index.add("lib", "1.0", "base")
        index.add("base", "1.0")
        text = lock_text(["app==1.0", "lib==1.0"], "3.11", special=Special(without_dependencies=("app",)))
        assert [pin.name for pin in read_lock(text).pins] == ["app", "base", "lib"]
        assert "# without-dependencies: app\n" in text
        with pytest.raises(BuildError, match="dep was not found"):
            lock_text(["app==1.0", "lib==1.0"], "3.11", special=Special(without_dependencies=("lib",)))

    def test_a_source_distribution_that_is_named_and_never_runs(self, index: Index, tmp_path: Path) -> None:
        index.add("app", "1.0", "old>=1")
        path = index.list(sdist(index.root / "files/simple", "old", tmp_path / "ran"))
        text = lock_text(["app==1.0"], "3.11", special=Special(build=("old",)))
        assert f"old==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n" in text
        assert "# build: old\n" in text
        for special in (Special(), Special(without_dependencies=("old",))):
            with pytest.raises(BuildError, match=r"old==1\.0 has no usable wheels.*; an environment names in `build`"):
                lock_text(["app==1.0"], "3.11", special=special)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("own", [False, True])
    def test_what_the_host_configured_counts_besides(
        self, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
    ) -> None:
        index.add("app", "1.0", "dep")
        monkeypatch.delenv("UV_NO_CONFIG")
        monkeypatch.delenv("UV_DEFAULT_INDEX")
        place = tmp_path / "config/uv/uv.toml"
        place.parent.mkdir(parents=True)
        place.write_text(f'[[index]]\nurl = "{index.url}/simple"\ndefault = true\n')
        monkeypatch.setenv("UV_CONFIG_FILE" if own else "XDG_CONFIG_HOME", str(place if own else tmp_path / "config"))
        assert "app==1.0" in scratch_lock(["app"], "3.11", special=Special(without_dependencies=("app",)))

    def test_a_size_that_the_index_does_not_tell(self, index: Index) -> None:
        index.add("app", "1.0", sized=False)
        text = lock_text(["app==1.0"], "3.11")
        assert "# download-bytes: unknown\n" in text
        assert wheel_bytes(text) is None


DEFAULTS = {"python": "3.11", "platform": "x86_64-manylinux_2_36"}


class TestWriteLocks:
    MANIFEST = MANIFEST.replace("numpy==2.2.6", "app==2.0").replace("numpy==1.26.4", "app==1.0")

    def test_one_for_each_environment(self, checkout: Checkout, index: Index) -> None:
        index.add("app", "1.0")
        index.add("app", "2.0")
        case = load(checkout.write(self.MANIFEST), IMAGES, checkout.root)
        paths = write_locks(case, ignore)
        assert [path.name for path in paths] == ["current.txt", "interpreter.txt"]
        assert [read_lock(path.read_text()).pins[0].version for path in paths] == ["2.0", "1.0"]
        assert sorted(path.name for path in (case.directory / "locks").iterdir()) == ["current.txt", "interpreter.txt"]

    def test_one_for_each_variant_of_a_release_case(self, checkout: Checkout, index: Index) -> None:
        for name, version in (("app", "1.0"), ("app", "2.0"), ("lib", "1.0"), ("lib", "1.1")):
            index.add(name, version)
        manifest = self.MANIFEST.replace("repro:\n", "repro:\n  requirements: [lib==1.0]\n", 1)
        manifest = manifest.replace("fixed:\n  expect", "fixed:\n  requirements: [lib==1.1]\n  expect")
        case = load(checkout.write(manifest), IMAGES, checkout.root)
        found = {path.name: [pin[:2] for pin in read_lock(path.read_text()).pins] for path in write_locks(case, ignore)}
        assert found["current.repro.txt"] == [("app", "2.0"), ("lib", "1.0")]
        assert found["interpreter.fixed.txt"] == [("app", "1.0"), ("lib", "1.1")]
        assert len(found) == 4

    def test_what_belongs_to_no_environment_any_more_is_removed(self, checkout: Checkout) -> None:
        case = load(checkout.write(self.MANIFEST), IMAGES, checkout.root)
        (case.directory / "locks").mkdir()
        for name in ("current.txt", "renamed.txt"):
            (case.directory / "locks" / name).write_text("")
        assert [path.name for path in remove_stale(case)] == ["renamed.txt"]
        assert [path.name for path in (case.directory / "locks").iterdir()] == ["current.txt"]

    def test_all_or_none(self, checkout: Checkout, index: Index) -> None:
        index.add("app", "2.0")
        case = load(checkout.write(self.MANIFEST), IMAGES, checkout.root)
        with pytest.raises(BuildError):
            write_locks(case, ignore)
        assert not (case.directory / "locks").exists()


# Locks that never leave this machine

TORCH = "torch==2.13.0 \\\n    --hash=sha256:" + "a" * 64 + "\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What uv would be asked: requirements, the lock that is there, and the settings that count."""
    asked: dict[str, object] = {}

    def compile_(source: Path, output: Path, python: str, *options: str, environ: Mapping[str, str]) -> None:
        settings = {name: environ[name] for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_PRERELEASE") if name in environ}
        asked.update(requirements=source.read_text(), previous=output.read_text(), settings=settings, options=options)

    monkeypatch.setattr(resolve, "_compile", compile_)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null" if "CONFIG" in name else "")
    return asked


def test_what_is_locked_stays_where_it_fits(compiled: dict[str, object]) -> None:
    scratch_lock(["six==1.16.0"], "3.11", LOCK)
    assert compiled["requirements"] == "six==1.16.0\n"
    assert compiled["previous"] == LOCK
    assert "--generate-hashes" in compiled["options"]  # type: ignore[operator]


def test_files_of_this_machine_are_taken_only_where_they_may(
    compiled: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_PRERELEASE", "allow")
    scratch_lock(["torch==2.13.0"], "3.11", anywhere=False)
    assert compiled["settings"] == {}
    scratch_lock(["torch==2.13.0"], "3.11", anywhere=True)
    assert compiled["settings"] == {"UV_FIND_LINKS": str(tmp_path)}


def test_a_local_build_goes_before_the_locked_one_and_the_rest_stays(
    compiled: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    scratch_lock(["torch==2.13.0"], "3.11", LOCK + TORCH, anywhere=True)
    assert str(compiled["previous"]).strip() == LOCK.strip()
    scratch_lock(["torch==2.13.0"], "3.11", LOCK + TORCH, anywhere=False)
    assert compiled["previous"] == LOCK + TORCH


@pytest.mark.parametrize(
    ("words", "away"),
    [
        (
            "error: Failed to fetch: `x` Caused by: error sending request for url (x) Caused by: connection refused",
            True,
        ),
        ("error: dns error: failed to lookup address information", True),
        ("error: Failed to fetch: `x` Caused by: HTTP status client error (404 Not Found) for url (x)", False),
        ("No solution found when resolving dependencies: because there is no version of thing==9", False),
    ],
)
def test_an_index_that_is_away_is_told_from_one_that_has_it_not(words: str, *, away: bool) -> None:
    assert builds.unreachable(words) == away
