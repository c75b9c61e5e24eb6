import sys
from importlib import metadata
from pathlib import Path

import pytest

from gpu_casebook.errors import BuildError, UsageError
from gpu_casebook.packages import wheels

INSTALLED = {"a": ("1.0", ["b>=2", 'c; python_version < "3.12"', 'd; extra == "more"', 'e; sys_platform == "win32"'])}
INSTALLED |= {"b": ("2.1", ["A"]), "c": ("0.3", [])}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name not in INSTALLED:
            raise metadata.PackageNotFoundError(name)
        return INSTALLED[name][0]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", lambda name: INSTALLED[name][1])


@pytest.mark.usefixtures("installed")
def test_what_the_runner_needs_is_what_it_runs_with_here_and_all_that_this_needs() -> None:
    assert wheels.runner_pins(["A>=1,<2"], "3.11") == ["a==1.0", "b==2.1", "c==0.3"]


@pytest.mark.usefixtures("installed")
def test_markers_are_asked_about_the_hosts_python() -> None:
    assert wheels.runner_pins(["a"], "3.12") == ["a==1.0", "b==2.1"]


@pytest.mark.usefixtures("installed")
def test_what_is_not_installed_here_is_named() -> None:
    with pytest.raises(UsageError, match="z is not installed here"):
        wheels.runner_pins(["z"], "3.11")


def test_the_closure_of_the_runner_holds_what_only_others_need() -> None:
    pins = {pin.partition("==")[0] for pin in wheels.runner_pins(["pydantic>=2", "docker"], "3.12")}
    assert {"pydantic", "pydantic-core", "typing-extensions", "docker", "requests", "urllib3"} <= pins


def test_names_are_canonical() -> None:
    assert wheels.name_of("Nvidia_ML.py>=12 ; python_version > '3'") == "nvidia-ml-py"


def test_without_a_pip_of_its_own_it_takes_the_one_uv_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wheels._pip() == [sys.executable, "-m", "pip"]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert wheels._pip()[1:] == ["tool", "run", "pip"]


def test_wheels_of_another_python_come_from_the_index(tmp_path: Path) -> None:
    found = wheels.download_pins(["markupsafe==3.0.2"], "3.13", tmp_path, print)
    assert [path.name.split("-")[2] for path in found] == ["cp313"]


def test_what_has_no_wheel_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"runner's packages could not be fetched as wheels for Python 3.12: \S"):
        wheels.download_pins(["markupsafe==0.0.99"], "3.12", tmp_path, print)


def test_a_hash_that_is_not_the_locks_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "current.txt"
    lock.write_text(f"idna==3.10 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(BuildError, match=r"the packages of current\.txt could not be fetched"):
        wheels.download_lock(lock, "3.11", tmp_path / "into", print)
