"""Prints, as one line of JSON, what is really installed and there: Python, packages and their files, driver, GPUs.

Run as `python -I -S attest.py WHAT` with a trial's variables, directory and files. -I and -S keep away what those may
bring; a second Python is started without them, to tell where a trial would import from. WHAT is `versions`, or `files`
for packages by their files too.
A script for the inside of an environment: it stands alone, with Python 3.8's standard library and nothing else. It
asks the driver's own libraries, never PyTorch, and what can't be found out is null or left out.
Sources: CUDA driver API (cuda.h) and NVML (nvml.h), whose functions return 0 on success; RECORD, as in PEP 376 and 427.
"""

from __future__ import annotations

import ast
import base64
import csv
import ctypes
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_CPU_FILE = Path("/proc/cpuinfo")
_OS_FILE = Path("/etc/os-release")
_PRELOAD_FILE = Path("/etc/ld.so.preload")
# Variables that decide which code runs. LD_LIBRARY_PATH is not among them: engines set it for the driver.
_VARIABLES = ("LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONUSERBASE")
_START = re.compile(r"[^/]*\.pth|(sitecustomize|usercustomize)\b.*")  # what Python reads or runs at its start
_SHOWN = 3  # files of one package that are named

# Asks where names would be imported from, and imports nothing for it, as a module of the case may have any name.
_LOOK = """
import sys, _frozen_importlib as machinery
def places(name):
    try: spec = machinery._find_spec(name, None)
    except Exception as error: return [repr(error)]
    if spec is None: return []
    return [spec.origin] if spec.origin not in (None, 'namespace') else list(spec.submodule_search_locations or [])
print(repr((sys.path, {name: places(name) for name in sys.argv[1:]})))
"""


def packages(path: list[str]) -> dict[str, str]:
    """Return versions by name. What comes first on the path is what gets imported."""
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=path):
        try:
            told = distribution.metadata  # reads the file each time
            name, version = told["Name"], told["Version"]
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


class Site:
    """The directory that has the environment's packages, by what their RECORDs say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.records: dict[str, tuple[str, str]] = {}  # path, normal and absolute -> package and hash
        self.tops: dict[str, str] = {}  # what lies in the directory itself -> package
        for record in sorted(directory.glob("*.dist-info/RECORD")):
            with record.open(newline="", encoding="utf-8", errors="replace") as file:
                rows = [row for row in csv.reader(file) if len(row) > 1]
            package = record.parent.name.partition("-")[0]
            self.records.update({os.path.normpath(directory / row[0]): (package, row[1]) for row in rows})
            self.tops.update({row[0].partition("/")[0]: package for row in rows})

    def names(self) -> set[str]:
        """Return what can be imported from it."""
        first = {top.partition(".")[0] for top in self.tops}
        return {name for name in first if name.isidentifier() and name != "__pycache__"}

    def files(self) -> set[str]:
        """Return every file that lies there or that a RECORD names."""
        below = {os.path.join(place, name) for place, _, names in os.walk(self.directory) for name in names}  # noqa: PTH118 many
        return below | set(filter(os.path.lexists, self.records))

    def strange(self) -> list[dict[str, str | None]]:
        """Return what is not as the packages brought it: files that differ, are missing, or came from elsewhere."""
        there = self.files()
        packed = [path for path, (_, told) in self.records.items() if told and not path.endswith(".pyc")]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            digests = dict(zip(packed, threads.map(digest_of, packed, [self.records[path][1] for path in packed])))  # noqa: B905 3.8 lacks it
        found: dict[str | None, list[str]] = {}
        for path, same in digests.items():
            if not same:
                word = "is not the file that was installed" if path in there else "is missing"
                found.setdefault(self.records[path][0], []).append(f"{self._shown(path)} {word}")
        for path in sorted(there):
            if path.endswith(".pyc"):
                wrong = unchecked(path)
                if wrong:
                    found.setdefault(self._owner(path), []).append(f"{self._shown(path)} {wrong}")
            elif path not in self.records:
                found.setdefault(self._owner(path), []).append(f"{self._shown(path)} is of no package")
            elif path.endswith("direct_url.json"):
                found.setdefault(self._owner(path), []).append("was not installed from an index, but from an address")
        packages = {record.parent for record in self.directory.glob("*.dist-info/RECORD")}
        for place in {*self.directory.glob("*.dist-info"), *self.directory.glob("*.egg-*")} - packages:
            found.setdefault(place.name.partition("-")[0], []).append("has no RECORD to compare its files with")
        return [strange(package, line) for package, lines in found.items() for line in shortened(lines)]

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self.directory)

    def _owner(self, path: str) -> str | None:
        """Return the package to which a file belongs by its place; None for one that acts on every process."""
        shown = self._shown(path)
        if _START.fullmatch(shown) and path not in self.records:
            return None
        top = shown.partition("/")[0]
        return self.tops.get(top, top.partition("-")[0])


def strange(package: str | None, text: str) -> dict[str, str | None]:
    return {"package": package, "text": text}


def shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"{len(lines) - _SHOWN} more files like these"]


def digest_of(path: str, told: str) -> bool:
    """Return whether the file has the hash that RECORD tells, such as "sha256=47DEQpj8..."."""
    algorithm, _, wanted = told.partition("=")
    try:
        digest = hashlib.new(algorithm)
        with open(path, "rb") as file:  # noqa: PTH123 of many
            for piece in iter(lambda: file.read(1 << 20), b""):
                digest.update(piece)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() == wanted


def unchecked(path: str) -> str | None:
    """Return why Python would take this byte code whatever its source says; None if it compares the two."""
    code = Path(path)
    if code.parent.name != "__pycache__":
        return None if code.with_suffix(".py").exists() else "is byte code without a source"
    try:
        with code.open("rb") as file:
            flags = file.read(8)[4:]
    except OSError:
        return None
    return "is byte code that is not checked against its source" if any(flags) else None


def look(names: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the path that a trial's Python has, and where it would import these from. Raises ValueError."""
    ended = subprocess.run([sys.executable, "-c", _LOOK, *names], capture_output=True, text=True, check=False)
    for line in reversed(ended.stdout.splitlines()):
        if line.startswith("(["):
            path, places = ast.literal_eval(line)
            return [os.path.abspath(place) for place in path], places  # noqa: PTH100 "" is the working directory
    raise ValueError((ended.stderr.strip() or "no output").splitlines()[-1])


def places(spec: ModuleSpec | None) -> list[str]:
    if spec is None:
        return []
    return [spec.origin] if spec.origin and spec.origin != "namespace" else list(spec.submodule_search_locations or ())


def resolved(paths: list[str]) -> list[str]:
    """Return them without links, each once: a package without __init__.py lies in lib and, by its link, in lib64."""
    return list(dict.fromkeys(map(os.path.realpath, paths)))


def on_the_path(site: Site) -> tuple[list[str], list[dict[str, str | None]]]:
    """Return the path of a trial's Python, and what it brings besides the standard library and the packages."""
    own = [*sys.path, str(site.directory), str(site.directory).replace("/lib/", "/lib64/")]
    here = Path.cwd()
    beside = {path.name.split(".")[0] for path in here.iterdir() if path.is_dir() or path.suffix in {".py", ".so"}}
    names = sorted(name for name in site.names() | beside if name.isidentifier())
    found = [strange(None, f"the variable {name} is {os.environ[name]}") for name in _VARIABLES if os.environ.get(name)]
    preloaded = search_file(_PRELOAD_FILE, r"(?m)^\s*([^#\s].*)$")
    if preloaded:
        found.append(strange(None, f"{_PRELOAD_FILE} loads {preloaded}"))
    try:
        path, seen = look(names)
    except ValueError as why:
        return own, [*found, strange(None, f"Python does not start as it would for a trial: {why}")]
    found += [strange(None, f"{place} is on the path") for place in path if place not in {*own, str(here)}]
    for name in names:
        right, taken = places(PathFinder.find_spec(name, own)), seen[name]
        if right and resolved(taken) != resolved(right) and taken not in (["frozen"], ["built-in"]):
            found.append(strange(None, f"{name} is imported from {', '.join(taken) or 'nowhere'}"))
    return path, found


def attest(what: str) -> dict[str, object]:
    base = Path(sys.executable).parents[1]
    site = Site(base / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages")
    cuda = library("libcuda.so.1")
    driver = driver_version()
    path, found = on_the_path(site)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "glibc": platform.libc_ver()[1] or None,
        "os": operating_system(),
        "cpu": search_file(_CPU_FILE, r"(?m)^model name\s*: (.+)$"),
        "cpus": len(os.sched_getaffinity(0)),
        "packages": packages(path),
        "strange": found,
        "content": {"files": len(site.records), "strange": site.strange()} if what == "files" else None,
        "cuda_driver": cuda and cuda_version(cuda),
        "driver": driver,
        "gpus": gpus(cuda, driver) if cuda else [],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(attest(*sys.argv[1:])) + "\n")
