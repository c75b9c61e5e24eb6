"""What lies beside the package and is found by entry point: in a checkout without an installation, and as wheels."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from casebook_workbench.corpus.run import WORKERS, workers
from casebook_workbench.doctor import gather
from gpu_casebook import __version__, plugins
from gpu_casebook.engines import registry
from gpu_casebook.errors import EngineError, UsageError

ROOT = Path(__file__).parents[1]
PLUGINS = {
    "casebook_ray": {"ray = casebook_ray.fleet:Fleet"},
    "casebook_rootless": {
        "apptainer = casebook_rootless.apptainer:ApptainerEngine",
        "charliecloud = casebook_rootless.charliecloud:CharliecloudEngine",
    },
}


def test_those_of_the_checkout_are_found_and_loaded() -> None:
    assert workers("ray").__module__ == "casebook_ray.fleet"
    assert [registry.kind(name).name for name in ("charliecloud", "apptainer")] == ["charliecloud", "apptainer"]


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "find", lambda _group: {})


@pytest.mark.usefixtures("no_plugins")
def test_without_them_who_asks_for_one_is_told_in_a_line() -> None:
    with pytest.raises(UsageError, match=r"^--fleet needs the plug-in gpu-casebook-ray, which is not installed: pip "):
        workers("ray")
    with pytest.raises(UsageError, match=r"^no engine 'charliecloud'; there are: docker, podman, venv$"):
        registry.kind("charliecloud")


def test_doctor_says_what_an_engine_lacks_only_where_its_plug_in_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_root: Path) -> None:
        raise EngineError("no ch-run on PATH")

    monkeypatch.setattr(registry.kind("charliecloud"), "connect", connect)
    assert gather._why_not("charliecloud", ROOT) == "no ch-run on PATH"
    monkeypatch.setattr(plugins, "find", lambda _group: {})
    assert gather._why_not("charliecloud", ROOT) is None


@pytest.mark.parametrize("name", list(PLUGINS))
def test_each_is_built_as_a_wheel_of_the_same_version(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "runner" / name, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (points,) = (archive.read(each).decode() for each in names if each.endswith("entry_points.txt"))
        (metadata,) = (archive.read(each).decode() for each in names if each.endswith("METADATA"))
    modules = {f"{name}/{path.name}" for path in (ROOT / "runner" / name).glob("*.py")}
    assert {each for each in names if ".dist-info/" not in each} == modules
    assert PLUGINS[name] <= {*points.splitlines()}
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nRequires-Dist: gpu-casebook\n" in metadata
    assert points.splitlines()[0] in {f"[{WORKERS}]", f"[{registry.GROUP}]"}
