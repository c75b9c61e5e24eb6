"""A process that faults on a real GPU, beside one that goes on computing there: the second one must notice nothing.

Both are this interpreter with its own PyTorch, started with plain allocations; no MPS.
"""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_casebook.devices import hardware, ledger
from gpu_casebook.devices.hardware import HostGpu

pytestmark = pytest.mark.gpu

COMPUTES = """
import sys, threading, torch
asked = iter(sys.stdin.readline, "")
a = torch.arange(2048 * 2048, device="cuda").remainder(7).float().reshape(2048, 2048)
out, expected = torch.empty_like(a), torch.mm(a, a)
torch.cuda.synchronize()
rounds, wrong, told = 0, 0, threading.Event()
def answer():
    for _ in asked:
        told.set()
threading.Thread(target=answer, daemon=True).start()
print("ready", flush=True)
while True:
    torch.mm(a, a, out=out)
    rounds, wrong = rounds + 1, wrong + int((out != expected).any())
    if told.is_set():
        told.clear()
        print(f"rounds={rounds} wrong={wrong}", flush=True)
"""

KERNEL = """
import torch
def run(body):
    source = 'extern "C" __global__ void broken(volatile float* out, int at) { ' + body + " }"
    kernel = torch.cuda._compile_kernel(source, "broken")
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[torch.zeros(64, device="cuda"), 2**31 - 1])
    print("launched", flush=True)
    torch.cuda.synchronize()
"""

FAULTS = {
    "illegal access": (KERNEL + 'run("out[at] = 1.0f;")', "illegal memory access"),
    "assertion": (
        "import torch; print(torch.ones(4, device='cuda')[torch.tensor([4], device='cuda')])",
        "device-side assert",
    ),
    "out of memory": (
        "import torch; kept = []\nwhile True:\n    kept.append(torch.empty(2**30, dtype=torch.uint8, device='cuda'))",
        "OutOfMemoryError",
    ),
    "hang that is killed": (KERNEL + 'run("while (out[0] == 0.0f) {}")', None),
}
HANGS_S = 5.0


@pytest.fixture(scope="module")
def gpu() -> Iterator[HostGpu]:
    found = hardware.gpus()
    if not found:
        pytest.skip("no NVIDIA GPU answers here")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("this Python has no PyTorch")
    with ledger.hold([found[0].index], print):
        yield found[0]


@pytest.fixture(scope="module")
def beside(gpu: HostGpu) -> Iterator["subprocess.Popen[str]"]:
    with started(COMPUTES, gpu) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def started(script: str, gpu: HostGpu) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    variables = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables
    )


def asked(process: "subprocess.Popen[str]") -> tuple[int, int]:
    """Return how many rounds it has computed, and how many of them gave something else than the first."""
    assert process.stdin
    assert process.stdout
    print(file=process.stdin, flush=True)
    found = re.fullmatch(r"rounds=(\d+) wrong=(\d+)\n", process.stdout.readline())
    assert found, process.poll()
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_its_own_process_alone(fault: str, gpu: HostGpu, beside: "subprocess.Popen[str]") -> None:
    script, error = FAULTS[fault]
    before, _ = asked(beside)
    with started(script, gpu) as process:
        if error is None:
            assert process.stdout
            assert process.stdout.readline() == "launched\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(HANGS_S)
            process.kill()
        else:
            _, stderr = process.communicate(timeout=120)
            assert error in stderr
    after, wrong = asked(beside)
    again, still_wrong = asked(beside)
    assert before < after < again
    assert (wrong, still_wrong) == (0, 0)
