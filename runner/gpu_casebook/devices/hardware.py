"""GPUs of this host: which there are, which fit an environment or are set aside; and its cores."""

import ctypes
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pynvml
from packaging.specifiers import SpecifierSet

from failure_signature.text import one_line
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.evidence import Gpu
from gpu_casebook.manifest.model import EnvironmentSpec

_SUFFIX = ".aside"


@dataclass(frozen=True, kw_only=True)
class HostGpu:
    """One GPU as the driver describes it. What is unknown is empty."""

    index: int
    name: str = ""
    uuid: str = ""
    minor: int = 0  # the number in /dev/nvidia<minor>
    compute_capability: str = ""
    memory_bytes: int = 0
    free_bytes: int = 0
    driver: str = ""
    pci: str = ""  # its address as "00000000:00:06.0", by which the kernel log knows it
    aside: str | None = None  # why it is not to be used, and what to do about it: see `set_aside`


def cores() -> int:
    """Return how many of this machine's cores this process may use."""
    return len(os.sched_getaffinity(0))


def gpus() -> list[HostGpu]:
    """Return this host's GPUs in the driver's order; none where no driver answers."""
    # A library that is loaded is found by its name, wherever it lies.
    path = host_facts().libraries.get("libnvidia-ml.so.1")
    with suppress(OSError):
        if path:
            ctypes.CDLL(str(path))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [gpu for index in range(pynvml.nvmlDeviceGetCount()) if (gpu := _gpu(index, driver))]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int, driver: str) -> HostGpu | None:
    """None for a GPU that is lost, or not this user's to see."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        return HostGpu(
            index=index,
            name=pynvml.nvmlDeviceGetName(handle),
            uuid=uuid,
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            compute_capability=f"{major}.{minor}",
            memory_bytes=memory.total,
            free_bytes=memory.free,
            driver=driver,
            pci=str(pynvml.nvmlDeviceGetPciInfo(handle).busId),
            aside=why_aside(uuid),
        )
    except pynvml.NVMLError:
        return None


def meets(spec: EnvironmentSpec, found: Sequence[HostGpu] | Sequence[Gpu]) -> str | None:
    """Return why these GPUs do not fit this environment, or None if they do."""
    reasons = [reason for gpu in found if (reason := _unfit(spec, gpu))]
    fit = len(found) - len(reasons)
    if fit >= spec.gpus:
        return None
    needed = "1 GPU is" if spec.gpus == 1 else f"{spec.gpus} GPUs are"
    there = f"{needed} needed, and there {'are' if fit > 1 else 'is'} {fit or 'none'}"
    if len(found) < spec.gpus:
        return there
    return reasons[0] if fit == 0 else f"{there} that will do: {reasons[0]}"


def suitable(spec: EnvironmentSpec, found: Sequence[HostGpu]) -> list[int]:
    """Return the indices of the GPUs that fit this environment, the one with the most free memory first."""
    fit = [gpu for gpu in found if _unfit(spec, gpu) is None]
    return [gpu.index for gpu in sorted(fit, key=lambda gpu: -gpu.free_bytes)]


def _unfit(spec: EnvironmentSpec, gpu: HostGpu | Gpu) -> str | None:
    if isinstance(gpu, HostGpu) and gpu.aside:
        return gpu.aside
    guess = "" if spec.capability_from else " (a guess)"
    checks = (
        (spec.compute_capability, gpu.compute_capability, f"compute capability {spec.compute_capability}{guess}"),
        (spec.driver, gpu.driver, f"driver {spec.driver}"),
    )
    for wanted, have, what in checks:
        if wanted and have and not SpecifierSet(wanted).contains(have, prereleases=True):
            return f"{what} needed, and {gpu.name} has {have}"
    return None


def lock_directory() -> Path:
    """Of notes and locks, for all users. Not sticky: the kernel refuses to open other users' files in such a place."""
    directory = Path(tempfile.gettempdir()) / "casebook-gpus"
    with suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o777)
    return directory


def set_aside(uuid: str, index: int, reason: str) -> None:
    """Note, beside the locks and so for every runner on this host, that this GPU did not recover from a fault.

    No card is ever reset from here. A person does that, and then says so: `nox -s clean`. The first reason stays: later
    ones follow from it.
    """
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with suppress(OSError), _note_of(uuid).open("x", encoding="utf-8") as file:
        file.write(f"GPU {index} is set aside since {since}: {reason}")
        _note_of(uuid).chmod(0o666)


def why_aside(uuid: str) -> str | None:
    """Return why this GPU is not to be used, and what to do about it; None if it may be."""
    try:
        text = _note_of(uuid).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError:
        text = ""
    return f"{one_line(text) or f'GPU {uuid} is set aside'}; `nox -s clean` takes it back"


def take_back(*, dry_run: bool) -> list[str]:
    """Have every GPU in use again, unless it is a `dry_run`, and return what was noted of each."""
    notes = []
    for path in sorted(lock_directory().glob(f"*{_SUFFIX}")):
        with suppress(OSError):
            note = f"{path.stem} ({one_line(path.read_text(encoding='utf-8', errors='replace'))})"
            if not dry_run:
                path.unlink()
            notes.append(note)
    return notes


def _note_of(uuid: str) -> Path:
    return lock_directory() / f"{uuid}{_SUFFIX}"
