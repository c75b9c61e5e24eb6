"""What the driver of a real GPU tells before, while and after a process faults on it. Needs the driver, and no more."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_casebook.devices import hardware, ledger
from gpu_casebook.devices.driver import host_facts
from gpu_casebook.devices.hardware import HostGpu
from gpu_casebook.devices.hygiene import Condition, assess
from gpu_casebook.engines import guard
from tests.fakes import FakeEngine

pytestmark = pytest.mark.gpu

GIB = 2**30

FAULTS = r'''
"""Takes 1 GiB, says so, and once told to, stores to an address that nobody gave out. Ends with the driver's error."""
import ctypes, sys

cuda = ctypes.CDLL(sys.argv[1])
KERNEL = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry poke() {
    .reg .b64 %at;
    .reg .b32 %what;
    mov.u64 %at, 4096;
    mov.u32 %what, 1;
    st.global.u32 [%at], %what;
    ret;
}
"""

def do(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit(f"{name}: {error}")

device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
do("cuInit", 0)
do("cuDeviceGet", ctypes.byref(device), 0)
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
do("cuCtxSetCurrent", context)
do("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(2**30))
do("cuModuleLoadData", ctypes.byref(module), KERNEL)
do("cuModuleGetFunction", ctypes.byref(kernel), module, b"poke")
print("taken", flush=True)
sys.stdin.readline()
do("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
do("cuCtxSynchronize")
'''


@pytest.fixture
def gpu() -> Iterator[HostGpu]:
    found = hardware.gpus()
    if not found:
        pytest.skip("no NVIDIA GPU answers here")
    with ledger.hold([found[0].index], print):
        yield found[0]


def faulting(gpu: HostGpu) -> "subprocess.Popen[str]":
    library = host_facts().libraries.get("libcuda.so.1", "libcuda.so.1")
    variables = {
        "CUDA_VISIBLE_DEVICES": gpu.uuid,
        "HOME": "/home/case",
        "USER": "case",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", FAULTS, str(library)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables)


def test_an_illegal_access_breaks_no_gpu(gpu: HostGpu) -> None:
    before = guard.read(gpu.uuid)
    assert before.lost is None
    assert before.used_bytes is not None
    said: list[str] = []
    with guard.guarded(FakeEngine({}), [gpu.index], said.append) as on:
        assert not on._is_over(on._faults())
        with faulting(gpu) as process:
            assert process.stdout
            assert process.stdout.readline() == "taken\n", process.stderr and process.stderr.read()
            during = guard.read(gpu.uuid)
            _, errors = process.communicate("\n", timeout=60)
        assert "700" in errors  # CUDA_ERROR_ILLEGAL_ADDRESS
        assert not on._is_over(on._faults()), on.given_up
        after = guard.read(gpu.uuid)
    assert during.used_bytes is not None
    assert during.used_bytes - before.used_bytes > GIB
    if during.processes is None:
        assert assess(before, during, []).condition is Condition.SHARED
    else:
        assert process.pid in during.ours
        assert assess(before, during, []).condition is Condition.LEFTOVER
    assert assess(before, after, []).condition is Condition.GOOD
    assert said == []
    assert hardware.why_aside(gpu.uuid) is None
