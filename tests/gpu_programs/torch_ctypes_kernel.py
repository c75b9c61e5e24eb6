# mypy: ignore-errors
"""A kernel from a shared library (raw_kernels.cu, called through ctypes) stores outside of a tensor.

Arguments: the library's path; behind | far.
"""

import ctypes
import sys

import torch


def launch_the_faulty_kernel(library: ctypes.CDLL, out: torch.Tensor, index: int) -> int:
    return library.raw_store_at(ctypes.c_void_p(out.data_ptr()), ctypes.c_longlong(index))


def read_the_result(out: torch.Tensor) -> float:
    return out.sum().item()


library = ctypes.CDLL(sys.argv[1])
out = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
print(f"launch_status={launch_the_faulty_kernel(library, out, 1 << 38 if sys.argv[2] == 'far' else 64)}", flush=True)
print(f"total={read_the_result(out)}")
