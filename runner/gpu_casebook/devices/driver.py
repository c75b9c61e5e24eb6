"""How a trial gets access to a GPU: what this host and the Docker engine offer, and which of it is used."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpu_casebook.trial import GpuAccess

CDI_KIND = "nvidia.com/gpu"

_LOADER_LINE = re.compile(r"^\s*(libcuda|libnvidia-ml)\.so\.1 .*=> (\S+)$", re.MULTILINE)
_USUAL_PLACES = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)
_USUAL_BINS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin")
_LIBRARIES = ("libcuda.so*", "libnvidia-*.so*", "libcudadebugger.so*")


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What this host has of an NVIDIA driver."""

    devices: Sequence[str] = ()
    groups: Sequence[int] = ()  # those that a process must be in to open the devices, where not everybody may
    libraries: Mapping[str, Path] = field(default_factory=dict)  # the driver's own, by file name, all of one version
    programs: Mapping[str, Path] = field(default_factory=dict)  # the same
    loader_knows: bool = False  # the dynamic loader finds the libraries without being told where
    cdi_kinds: Sequence[str] = ()  # what this host's CDI specifications describe

    @property
    def library_directories(self) -> list[str]:
        """What LD_LIBRARY_PATH must name for a program to find the driver; nothing if the loader knows."""
        if self.loader_knows:
            return []
        return sorted({str(path.parent) for name, path in self.libraries.items() if name.startswith("libcuda.so")})


def host_facts(cdi_directories: Iterable[str] = ("/etc/cdi", "/var/run/cdi")) -> HostFacts:
    """Return what this host has. Cheap: a few directory listings and one call of ldconfig."""
    found = [Path(match[2]).parent for match in _LOADER_LINE.finditer(_ldconfig())]
    loader = [path for path in found if "i386" not in path.name and path.name != "lib32"]
    named = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    places = [*loader, *named, *map(Path, _USUAL_PLACES)]
    smi = shutil.which("nvidia-smi", path=os.pathsep.join([os.environ.get("PATH", ""), *_USUAL_BINS]))
    devices = [path for path in sorted(Path("/dev").glob("nvidia*")) if path.is_char_device()]
    return HostFacts(
        devices=[str(path) for path in devices],
        groups=sorted({path.stat().st_gid for path in devices if path.stat().st_mode & 0o006 != 0o006}),
        libraries=driver_libraries(places),
        programs={"nvidia-smi": Path(smi)} if smi else {},
        loader_knows=bool(loader),
        cdi_kinds=_cdi_kinds(cdi_directories),
    )


def _ldconfig() -> str:
    program = shutil.which("ldconfig", path=os.pathsep.join([os.environ.get("PATH", ""), "/sbin"]))
    return subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout if program else ""


def driver_libraries(places: Iterable[Path]) -> dict[str, Path]:
    """Return the driver's libraries in these directories: the first of each name, and only of libcuda's own version.

    A CUDA toolkit may bring a newer libcuda for forward compatibility in a directory called compat, and a container
    toolkit has libraries with names such as the driver's: both are left out.
    """
    found: dict[str, Path] = {}
    for place in places:
        for path in (path for pattern in _LIBRARIES for path in place.glob(pattern)):
            if "compat" not in place.parts and path.is_file():
                found.setdefault(path.name, path)
    version = _version(found.get("libcuda.so.1"))
    return {name: path for name, path in found.items() if version in {None, _version(path)}}


def _version(path: Path | None) -> str | None:
    """Return the driver's version in a library's real name, such as "580.159.04", or None."""
    match = re.search(r"\.so\.(\d+\.\d[\d.]*)$", path.resolve().name) if path else None
    return match[1] if match else None


def _cdi_kinds(directories: Iterable[str]) -> list[str]:
    kinds = set()
    for directory in map(Path, directories):
        for path in (*directory.glob("*.yaml"), *directory.glob("*.json")):
            with suppress(OSError):
                kinds.update(re.findall(r'"?kind"?\s*:\s*"?([\w.-]+/[\w.-]+)', path.read_text("utf-8", "replace")))
    return sorted(kinds)


def passthrough(host: HostFacts) -> GpuAccess | None:
    """Return the way to a GPU that any engine on this host has: its devices and the driver's files; None without."""
    numbered = any(re.fullmatch(r"/dev/nvidia\d+", device) for device in host.devices)
    if numbered and "/dev/nvidiactl" in host.devices and "libcuda.so.1" in host.libraries:
        where = ", ".join(sorted({str(path.parent) for path in host.libraries.values()}))
        return GpuAccess(mode="passthrough", detail=f"devices, and the driver's libraries from {where}, read-only")
    return None
