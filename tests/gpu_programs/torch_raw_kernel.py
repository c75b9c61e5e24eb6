# mypy: ignore-errors
"""A kernel compiled from a string stores far outside of every allocation, or is launched in a way that is refused.

Arguments: far | behind | configuration.
"""

import sys

import torch

SOURCE = r"""
extern "C" __global__ void store_one(float* out, int row, int width) { out[(long long)row * width] = 1.0f; }
"""


def launch_the_faulty_kernel(out: torch.Tensor, row: int, width: int, threads: int) -> None:
    kernel = torch.cuda._compile_kernel(SOURCE, "store_one")
    kernel(grid=(1, 1, 1), block=(threads, 1, 1), args=[out, row, width])


def read_the_result(out: torch.Tensor) -> float:
    return out.sum().item()


which = sys.argv[1]
out = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
launch_the_faulty_kernel(out, 64, 1 << 30 if which == "far" else 1, 2048 if which == "configuration" else 1)
out = out + 1
print("launched=1", flush=True)
print(f"total={read_the_result(out)}")
