# mypy: ignore-errors
"""A Triton kernel without its mask stores behind a buffer: just behind, or far away.

Argument: behind | far.
"""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def scale_without_mask(source, target, offset, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offset + index, 2 * tl.load(source + index))


def launch_the_faulty_kernel(source: torch.Tensor, target: torch.Tensor, offset: int) -> None:
    scale_without_mask[(1,)](source, target, offset, BLOCK=128)


def read_the_result(target: torch.Tensor) -> float:
    return target.sum().item()


source = torch.ones(128, device="cuda")
target = torch.zeros(100, device="cuda")
torch.cuda.synchronize()
launch_the_faulty_kernel(source, target, 1 << 38 if sys.argv[1] == "far" else 0)
print("launched=1", flush=True)
print(f"total={read_the_result(target)}")
