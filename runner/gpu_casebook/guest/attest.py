"""Prints, as one line of JSON, what is really installed and there: Python, packages, driver, CUDA, GPUs.

A script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else. It
asks the driver's own libraries, never PyTorch, and what can't be found out is null or left out.
Sources: CUDA driver API (cuda.h) and NVML (nvml.h), whose functions return 0 on success.
"""

from __future__ import annotations

import ctypes
import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_OS_FILE = Path("/etc/os-release")


def packages() -> dict[str, str]:
    """Return versions by name. What comes first on the path is what gets imported."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # noqa: BLE001, S112 - a broken installation is no reason to report nothing
            continue
        if name and version:
            found.setdefault(name, version)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def call(library: ctypes.CDLL, function: str, *arguments: object) -> bool:
    """Return whether there is such a function and it succeeded."""
    found = getattr(library, function, None)
    return found is not None and found(*arguments) == 0


def number(library: ctypes.CDLL, function: str, *arguments: object) -> int | None:
    """Return what the function writes where its first argument points to."""
    value = ctypes.c_int(-1)
    return value.value if call(library, function, ctypes.byref(value), *arguments) else None


def cuda_version(cuda: ctypes.CDLL) -> str | None:
    """Return the CUDA version that the driver supports; 13000 is "13.0"."""
    version = number(cuda, "cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def gpus(cuda: ctypes.CDLL, driver: str | None) -> list[dict[str, object]]:
    if not call(cuda, "cuInit", 0):
        return []
    found = (gpu(cuda, index, driver) for index in range(number(cuda, "cuDeviceGetCount") or 0))
    return [each for each in found if each is not None]


def gpu(cuda: ctypes.CDLL, index: int, driver: str | None) -> dict[str, object] | None:
    device = number(cuda, "cuDeviceGet", index)
    name = ctypes.create_string_buffer(256)
    if device is None or not call(cuda, "cuDeviceGetName", name, len(name), device):
        return None
    major = number(cuda, "cuDeviceGetAttribute", _COMPUTE_CAPABILITY_MAJOR, device)
    minor = number(cuda, "cuDeviceGetAttribute", _COMPUTE_CAPABILITY_MINOR, device)
    memory = ctypes.c_size_t(0)
    has_memory = call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return {
        "name": name.value.decode("utf-8", "replace"),
        "compute_capability": f"{major}.{minor}",
        "memory_bytes": memory.value if has_memory else None,
        "driver": driver,
    }


def driver_version() -> str | None:
    nvml = library("libnvidia-ml.so.1")
    return (nvml and nvml_driver_version(nvml)) or kernel_driver_version()


def nvml_driver_version(nvml: ctypes.CDLL) -> str | None:
    if not call(nvml, "nvmlInit_v2"):
        return None
    text = ctypes.create_string_buffer(96)
    found = call(nvml, "nvmlSystemGetDriverVersion", text, len(text))
    call(nvml, "nvmlShutdown")
    return text.value.decode("ascii", "replace") if found else None


def kernel_driver_version() -> str | None:
    """Return the version in such a line as "... Kernel Module  580.65.06  Release Build ..."."""
    return search_file(_DRIVER_FILE, r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def operating_system() -> str | None:
    """Return such a name as "Debian GNU/Linux 12 (bookworm) (x86_64)"."""
    name = search_file(_OS_FILE, r"(?m)^PRETTY_NAME=['\"]?([^'\"\n]+)")
    return f"{name} ({platform.machine()})" if name else None


def search_file(path: Path, pattern: str) -> str | None:
    """Return the pattern's first group in a file; None if there is no such file or text."""
    try:
        match = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return match.group(1) if match else None


def attest() -> dict[str, object]:
    cuda = library("libcuda.so.1")
    driver = driver_version()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "os": operating_system(),
        "packages": packages(),
        "cuda_driver": cuda and cuda_version(cuda),
        "driver": driver,
        "gpus": gpus(cuda, driver) if cuda else [],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(attest()) + "\n")
