"""GPUs of this host. Without one: a driver's library that answers as NVML does stands in for it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_casebook.devices import hardware
from gpu_casebook.devices.hardware import HostGpu, gpus, meets, suitable
from gpu_casebook.evidence import Gpu
from gpu_casebook.manifest.model import EnvironmentSpec

H200 = HostGpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-aaaa",
    minor=0,
    compute_capability="9.0",
    memory_bytes=150_754_820_096,
    free_bytes=150_000_000_000,
    driver="580.159.04",
    pci="00000000:00:06.0",
)
A100 = replace(H200, index=1, name="NVIDIA A100", uuid="GPU-bbbb", minor=1, compute_capability="8.0", free_bytes=1)


class LostError(Exception):
    pass


class FakeNvml(SimpleNamespace):
    """As much of pynvml as is used, for the GPUs it is made with. One of None is lost."""

    NVMLError = LostError

    def __init__(self, found: Sequence[HostGpu | None], *, there: bool = True) -> None:
        super().__init__(found=found, there=there, open=0)

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.there:
            raise LostError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.found)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> HostGpu:  # noqa: N802
        gpu: HostGpu | None = self.found[index]
        if gpu is None:
            raise LostError("GPU is lost")
        return gpu

    def nvmlDeviceGetName(self, handle: HostGpu) -> str:  # noqa: N802
        return handle.name

    def nvmlDeviceGetUUID(self, handle: HostGpu) -> str:  # noqa: N802
        return handle.uuid

    def nvmlDeviceGetMinorNumber(self, handle: HostGpu) -> int:  # noqa: N802
        return handle.minor

    def nvmlDeviceGetCudaComputeCapability(self, handle: HostGpu) -> tuple[int, ...]:  # noqa: N802
        return tuple(map(int, handle.compute_capability.split(".")))

    def nvmlDeviceGetPciInfo(self, handle: HostGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=handle.pci)

    def nvmlDeviceGetMemoryInfo(self, handle: HostGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=handle.memory_bytes, free=handle.free_bytes)


def test_gpus_as_the_driver_tells_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([H200, A100])
    monkeypatch.setattr(hardware, "pynvml", nvml)
    assert gpus() == [H200, A100]
    assert nvml.open == 0


def test_a_gpu_that_is_lost_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([None, A100])
    monkeypatch.setattr(hardware, "pynvml", nvml)
    assert gpus() == [A100]
    assert nvml.open == 0


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "pynvml", FakeNvml([], there=False))
    assert gpus() == []


def test_the_real_library_is_asked_without_harm() -> None:
    assert all(gpu.memory_bytes > 0 for gpu in gpus())


@pytest.mark.gpu
def test_this_hosts_gpus() -> None:
    found = gpus()
    if not found:
        pytest.skip("no NVIDIA GPU answers here")
    assert [gpu.index for gpu in found] == sorted(gpu.index for gpu in found)
    assert all(gpu.uuid.startswith("GPU-") and Path(f"/dev/nvidia{gpu.minor}").exists() for gpu in found)


def spec(**fields: Any) -> EnvironmentSpec:
    return EnvironmentSpec.model_construct(image="cuda13", requirements=[], **{"gpus": 1, **fields})


@pytest.mark.parametrize(
    ("wanted", "found", "reason"),
    [
        ({"gpus": 0}, [], None),
        ({"gpus": 0, "compute_capability": ">=99"}, [], None),
        ({}, [H200], None),
        ({}, [], "1 GPU is needed, and there is none"),
        ({"gpus": 2}, [], "2 GPUs are needed, and there is none"),
        ({"gpus": 2}, [H200], "2 GPUs are needed, and there is 1"),
        ({"gpus": 4}, [H200, A100], "4 GPUs are needed, and there are 2"),
        ({"gpus": 2}, [H200, A100], None),
        ({"compute_capability": ">=9.0,<10.0"}, [H200], None),
        ({"compute_capability": ">=9.0,<10.0"}, [A100, H200], None),
        (
            {"compute_capability": ">=10.0"},
            [H200],
            "compute capability >=10.0 (a guess) needed, and NVIDIA H200 has 9.0",
        ),
        (
            {"compute_capability": ">=10.0", "capability_from": "its README"},
            [H200],
            "compute capability >=10.0 needed, and NVIDIA H200 has 9.0",
        ),
        (
            {"compute_capability": ">=9.0", "capability_from": "its README", "gpus": 2},
            [H200, A100],
            "2 GPUs are needed, and there is 1 that will do: compute capability >=9.0 needed, and NVIDIA A100 has 8.0",
        ),
        ({"driver": ">=580"}, [H200], None),
        ({"driver": ">=590"}, [H200], "driver >=590 needed, and NVIDIA H200 has 580.159.04"),
        ({"driver": "<580.200"}, [H200], None),
    ],
)
def test_what_hardware_does(wanted: dict[str, Any], found: Sequence[HostGpu], reason: str | None) -> None:
    assert meets(spec(**wanted), found) == reason


def test_what_a_trial_sees_can_be_asked_too() -> None:
    seen = Gpu(name="NVIDIA H200", compute_capability="9.0", driver=None)
    assert meets(spec(driver=">=590"), [seen]) is None
    assert meets(spec(compute_capability=">=12"), [seen]) is not None


def test_suitable_are_the_fit_ones_and_the_freest_first() -> None:
    busy = replace(H200, index=2, free_bytes=5)
    assert suitable(spec(compute_capability=">=9"), [busy, A100, H200]) == [0, 2]
