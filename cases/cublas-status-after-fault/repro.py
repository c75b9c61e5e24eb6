# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A backward kernel stores past a buffer of one row; the next matrix product says CUBLAS_STATUS_EXECUTION_FAILED.

Look for: 256 tokens as one sequence give the right gradients. The same 256 tokens as 4 sequences end in "CUDA error:
CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", raised by a product whose shapes, operands and output are
those of the first step. launched_with_4_sequences=1 is printed before it: the launch of the guilty kernel said nothing.
CUDA_LAUNCH_BLOCKING=1 moves the error to that launch, and calls it an illegal memory access.
"""

import ctypes
import struct
import time
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

SEQUENCES = 4  # any number above one
TOKENS = 256  # of all sequences together, so that every product has the same shape in both steps
C = 1024  # channels; a row of float32 gradients is 4096 bytes, so rows 1 to 3 lie just past a buffer of one row
PAUSE = 1.0  # seconds, far more than 4 small programs need to run and to fault; see backward()


@triton.jit
def decay_backward(decay, key, dy, dkey, rows, length, C: tl.constexpr):
    """Backward of key * decay. One program per sequence, and for each a row of gradients: `rows` needs that many."""
    b, c = tl.program_id(0), tl.arange(0, C)
    d, total = tl.load(decay + c), tl.zeros([C], tl.float32)
    for t in range(length):
        at = (b * length + t) * C + c
        gradient = tl.load(dy + at).to(tl.float32)
        total += gradient * tl.load(key + at).to(tl.float32)
        tl.store(dkey + at, (gradient * d).to(tl.bfloat16))
    tl.store(rows + b * C + c, total)


def before_an_unmapped_page(count: int) -> torch.Tensor:
    """(count, C) float32 whose last byte is the last mapped one: what lies behind stays reserved and empty.

    In training this is luck. Mostly other tensors lie behind, and the store destroys them without any error.
    """
    driver, nbytes = ctypes.CDLL("libcuda.so.1"), count * C * 4

    def call(name, *args):
        status = getattr(driver, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if status:
            raise RuntimeError(f"{name} returned {status}")

    granule, base, handle = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    kind = struct.pack("iiiiQQ", 1, 0, 1, 0, 0, 0)  # CUmemAllocationProp: pinned, no export, device 0
    access = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 may read and write
    call("cuMemGetAllocationGranularity", ctypes.byref(granule), kind, 0)
    size = -(-nbytes // granule.value) * granule.value
    call("cuMemAddressReserve", ctypes.byref(base), size + granule.value, 0, 0, 0)
    call("cuMemCreate", ctypes.byref(handle), size, kind, 0)
    call("cuMemMap", base, size, 0, handle, 0)
    call("cuMemSetAccess", base, size, access, 1)
    place = {"data": (base.value + size - nbytes, False), "shape": (count, C), "typestr": "<f4", "version": 3}
    memory = SimpleNamespace(__cuda_array_interface__={**place, "strides": None})
    return torch.as_tensor(memory, device="cuda")


def backward(x, decay, key, dy, rows, weight_grad, sequences):
    """Gradients of decay and weight in (x @ weight) * decay."""
    dkey = torch.empty_like(key)
    decay_backward[(sequences,)](decay, key, dy, dkey, rows, TOKENS // sequences, C)
    # The host is busy and calls nothing of CUDA: the kernel faults, and nobody asks. Without the pause the product is
    # launched before the fault has happened, and says nothing; the next synchronisation then tells of the illegal access.
    time.sleep(PAUSE)
    print(f"launched_with_{sequences}_sequences=1", flush=True)
    torch.mm(x.T, dkey, out=weight_grad)  # bf16 without a bias: cublasGemmEx
    return rows[:sequences].sum(0), weight_grad


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    x, dy = torch.randn(2, TOKENS, C, device="cuda").bfloat16()
    weight = (torch.randn(C, C, device="cuda") / C**0.5).bfloat16()
    decay, weight_grad = torch.rand(C, device="cuda"), torch.empty_like(weight)
    key = x @ weight
    exact_decay = (dy.double() * key.double()).sum(0)
    exact_weight = x.double().T @ (dy.double() * decay.double())
    rows = before_an_unmapped_page(1)

    for sequences in (1, SEQUENCES):  # the first step also gives cuBLAS its handle and its workspace
        decay_grad, weight_grad = backward(x, decay, key, dy, rows, weight_grad, sequences)
        print(f"decay_grad_rel_err_{sequences}={relative_error(decay_grad, exact_decay):.3e}")
        print(f"weight_grad_rel_err_{sequences}={relative_error(weight_grad, exact_weight):.3e}", flush=True)


if __name__ == "__main__":
    main()
