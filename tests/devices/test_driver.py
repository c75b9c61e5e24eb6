"""Ways to a GPU: tested on what engines and hosts say of themselves, without any GPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_casebook.devices import driver
from gpu_casebook.devices.driver import HostFacts, driver_libraries
from gpu_casebook.engines.docker.options import gpu_part
from gpu_casebook.trial import GpuAccess

OLD = {
    "ServerVersion": "20.10.24+dfsg1",
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
}
"""Docker 20.10 of Debian 12, without anything for GPUs: it knows of no CDI."""
TOOLKIT = OLD | {"Runtimes": {**OLD["Runtimes"], "nvidia": {"path": "nvidia-container-runtime"}}}  # type: ignore[dict-item]
CDI_27 = OLD | {"ServerVersion": "27.5.1", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}
CDI_28 = CDI_27 | {
    "ServerVersion": "28.3.0",
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
}
CDI_28_WITHOUT = CDI_28 | {"DiscoveredDevices": [{"Source": "cdi", "ID": "vendor.example/thing=0"}]}

DRIVER = HostFacts(
    devices=["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"],
    libraries={
        "libcuda.so.1": Path("/usr/local/nvidia/lib64/libcuda.so.1"),
        "libnvidia-ml.so.1": Path("/usr/local/nvidia/lib64/libnvidia-ml.so.1"),
    },
    programs={"nvidia-smi": Path("/usr/local/nvidia/bin/nvidia-smi")},
)
DRIVER_AND_CDI = HostFacts(devices=DRIVER.devices, libraries=DRIVER.libraries, cdi_kinds=["nvidia.com/gpu"])
NO_DEVICES = HostFacts(libraries=DRIVER.libraries)
NO_LIBRARIES = HostFacts(devices=DRIVER.devices)
NOTHING = HostFacts()


def part(mode: Any, known: Mapping[str, str] | None = None, *, host: HostFacts = DRIVER) -> Any:
    return gpu_part(GpuAccess(mode=mode), [1], host=host, minors={0: 0, 1: 3}, known=known or {})


def test_toolkit_asks_for_the_chosen_gpus() -> None:
    made = part("toolkit")
    (request,) = made.options["device_requests"]
    assert request["DeviceIDs"] == ["1"]
    assert "gpu" in request["Capabilities"][0]
    assert made.variables["NVIDIA_VISIBLE_DEVICES"] == "1"
    assert not made.mounts


def test_cdi_names_the_chosen_gpus() -> None:
    (request,) = part("cdi").options["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=1"])


def test_passthrough_hands_on_the_device_of_the_chosen_gpu_alone() -> None:
    assert part("passthrough").options["devices"] == [
        "/dev/nvidia3:/dev/nvidia3:rw",
        "/dev/nvidiactl:/dev/nvidiactl:rw",
        "/dev/nvidia-uvm:/dev/nvidia-uvm:rw",
        "/dev/nvidia-uvm-tools:/dev/nvidia-uvm-tools:rw",
    ]


def test_passthrough_leaves_out_devices_the_host_lacks() -> None:
    host = HostFacts(devices=["/dev/nvidiactl"], libraries=DRIVER.libraries, groups=[44])
    options = part("passthrough", host=host).options
    assert options["devices"] == ["/dev/nvidia3:/dev/nvidia3:rw", "/dev/nvidiactl:/dev/nvidiactl:rw"]
    assert options["group_add"] == ["44"]


def test_passthrough_mounts_the_driver_file_by_file_and_read_only() -> None:
    mounts = part("passthrough").mounts
    assert {mount["Target"]: mount["Source"] for mount in mounts} == {
        "/usr/local/nvidia/lib64/libcuda.so": "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.1": "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/local/nvidia/lib64/libnvidia-ml.so.1": "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
        "/usr/local/nvidia/bin/nvidia-smi": "/usr/local/nvidia/bin/nvidia-smi",
    }
    assert all(mount["ReadOnly"] and mount["Type"] == "bind" for mount in mounts)


def test_passthrough_adds_to_the_search_paths_that_are_set() -> None:
    assert part("passthrough", {"LD_LIBRARY_PATH": "/own", "PATH": "/opt/env/bin:/bin"}).variables == {
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/own",
        "PATH": "/opt/env/bin:/bin:/usr/local/nvidia/bin",
    }
    assert part("passthrough").variables["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "/usr/bin" in part("passthrough").variables["PATH"].split(":")


def library(directory: Path, name: str, *links: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).touch()
    for link in links:
        (directory / link).symlink_to(name)


def test_the_drivers_libraries_are_of_one_version(tmp_path: Path) -> None:
    library(tmp_path / "a", "libcuda.so.580.159.04", "libcuda.so.1", "libcuda.so")
    library(tmp_path / "a", "libnvidia-ml.so.580.159.04", "libnvidia-ml.so.1")
    library(tmp_path / "a", "libnvidia-container.so.1.17.0", "libnvidia-container.so.1")
    library(tmp_path / "a", "libnvidia-egl-gbm.so.1.1.2")
    library(tmp_path / "b", "libnvidia-nvvm.so.580.159.04", "libnvidia-nvvm.so.4")
    library(tmp_path / "b", "libnvidia-old.so.470.1.1")
    assert sorted(driver_libraries([tmp_path / "a", tmp_path / "b"])) == [
        "libcuda.so",
        "libcuda.so.1",
        "libcuda.so.580.159.04",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.580.159.04",
        "libnvidia-nvvm.so.4",
        "libnvidia-nvvm.so.580.159.04",
    ]


def test_a_toolkits_own_libcuda_is_not_the_drivers(tmp_path: Path) -> None:
    library(tmp_path / "cuda" / "compat", "libcuda.so.590.1.1", "libcuda.so.1")
    library(tmp_path / "lib", "libcuda.so.580.1.1", "libcuda.so.1")
    found = driver_libraries([tmp_path / "cuda" / "compat", tmp_path / "lib"])
    assert found["libcuda.so.1"] == tmp_path / "lib" / "libcuda.so.1"


def test_libraries_without_a_version_in_their_names(tmp_path: Path) -> None:
    library(tmp_path, "libcuda.so.1")
    library(tmp_path, "libnvidia-ml.so.1")
    assert sorted(driver_libraries([tmp_path])) == ["libcuda.so.1", "libnvidia-ml.so.1"]


def test_the_first_place_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        library(tmp_path / name, "libcuda.so.1")
    assert driver_libraries([tmp_path / "two", tmp_path / "one"])["libcuda.so.1"].parent.name == "two"


LDCONFIG = """\
1382 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcudart.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.12
\tlibnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
"""


def test_the_loader_knows_where_the_driver_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path / "lib", "libcuda.so.1")
    listing = LDCONFIG.replace("/lib/x86_64-linux-gnu", str(tmp_path / "lib"))
    monkeypatch.setattr(driver, "_ldconfig", lambda: listing)
    facts = driver.host_facts()
    assert facts.libraries["libcuda.so.1"] == tmp_path / "lib" / "libcuda.so.1"
    assert facts.loader_knows
    assert facts.library_directories == []


def test_only_ld_library_path_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path / "odd", "libcuda.so.1")
    (tmp_path / "odd" / "nvidia-smi").touch(mode=0o755)
    monkeypatch.setattr(driver, "_ldconfig", lambda: "")
    monkeypatch.setattr(driver, "_USUAL_PLACES", ())
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path / 'odd'}")
    monkeypatch.setenv("PATH", str(tmp_path / "odd"))
    facts = driver.host_facts()
    assert facts.library_directories == [str(tmp_path / "odd")]
    assert facts.programs == {"nvidia-smi": tmp_path / "odd" / "nvidia-smi"}


def test_kinds_of_devices_in_cdi_specifications(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n")
    (tmp_path / "other.json").write_text('{"cdiVersion": "0.6.0", "kind": "vendor.example/net", "devices": []}')
    facts = driver.host_facts([str(tmp_path), "/nowhere"])
    assert list(facts.cdi_kinds) == ["nvidia.com/gpu", "vendor.example/net"]
