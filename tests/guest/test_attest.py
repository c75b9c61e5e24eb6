import ast
import ctypes
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gpu_casebook.evidence import Attestation
from gpu_casebook.guest import attest


class FakeCuda:
    """libcuda with GPUs given as (name, major, minor, memory); `broken` functions fail."""

    def __init__(self, *gpus: tuple[bytes, int, int, int], broken: str = "") -> None:
        self.gpus, self.broken = gpus, broken

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name == self.broken:
            return lambda *_arguments: 999
        return super().__getattribute__(name)

    def cuInit(self, _flags: int) -> int:  # noqa: N802
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12080
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.gpus)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: int) -> int:  # noqa: N802
        name.value = self.gpus[device][0][: length - 1]
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:  # noqa: N802
        value._obj.value = self.gpus[device][{75: 1, 76: 2}[attribute]]
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: int) -> int:  # noqa: N802
        size._obj.value = self.gpus[device][3]
        return 0


H200 = (b"NVIDIA H200", 9, 0, 150_754_820_096)
OLD = (b"Tesla T4", 7, 5, 15_000_000_000)


def fake(*gpus: tuple[bytes, int, int, int], broken: str = "") -> ctypes.CDLL:
    return FakeCuda(*gpus, broken=broken)  # type: ignore[return-value]


def test_gpus() -> None:
    found = attest.gpus(fake(H200, OLD), "580.65.06")
    assert found == [
        {
            "name": "NVIDIA H200",
            "compute_capability": "9.0",
            "memory_bytes": 150_754_820_096,  # more than an int holds
            "driver": "580.65.06",
        },
        {"name": "Tesla T4", "compute_capability": "7.5", "memory_bytes": 15_000_000_000, "driver": "580.65.06"},
    ]
    assert attest.cuda_version(fake()) == "12.8"


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"])
def test_a_driver_that_fails_means_no_gpu(function: str) -> None:
    assert attest.gpus(fake(H200, broken=function), None) == []


def test_memory_that_is_not_told_is_null() -> None:
    assert attest.gpus(fake(H200, broken="cuDeviceTotalMem_v2"), None)[0]["memory_bytes"] is None


def test_an_old_library_without_the_function() -> None:
    assert attest.cuda_version(object()) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n", "535.129.03"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC 12.2.0\n",
            "580.65.06",
        ),
        ("something else\n", None),
    ],
)
def test_driver_from_the_kernel_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, version: str | None
) -> None:
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(attest, "_DRIVER_FILE", tmp_path / "version")
    assert attest.kernel_driver_version() == version


def test_without_any_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attest, "_DRIVER_FILE", tmp_path / "none")
    monkeypatch.setattr(attest, "library", lambda _name: None)
    told = Attestation.model_validate(attest.attest("versions"))
    assert (told.gpus, told.driver, told.cuda_driver) == ([], None, None)


def test_packages_first_on_the_path_wins_and_broken_ones_are_left_out(tmp_path: Path) -> None:
    for folder, version in (("a", "1.0"), ("b", "2.0")):
        info = tmp_path / folder / f"Thing-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Thing\nVersion: {version}\n")
    (tmp_path / "a" / "broken-1.dist-info").mkdir()
    assert attest.packages([str(tmp_path / "a"), str(tmp_path / "b")]) == {"Thing": "1.0"}


def test_alone_it_prints_one_line_that_is_an_attestation(tmp_path: Path) -> None:
    script = tmp_path / "attest.py"
    script.write_bytes(Path(attest.__file__).read_bytes())
    ended = subprocess.run(
        [sys.executable, "-I", "-S", script, "versions"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ended.stdout.count("\n") == 1
    told = Attestation.model_validate(json.loads(ended.stdout))
    assert told.packages["pytest"] == metadata.version("pytest")
    assert told.python == "{}.{}.{}".format(*sys.version_info[:3])


def test_is_python_3_8_with_the_standard_library_alone() -> None:
    tree = ast.parse(Path(attest.__file__).read_text(), feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("line", ['PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"', "PRETTY_NAME='Alpine Linux v3.20'"])
def test_the_operating_system_by_its_own_name(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = tmp_path / "os-release"
    release.write_text(f"NAME=x\n{line}\nID=y\n")
    monkeypatch.setattr(attest, "_OS_FILE", release)
    name = line.partition("=")[2].strip("'\"")
    assert str(attest.operating_system()).startswith(f"{name} (")
    release.unlink()
    assert attest.operating_system() is None
