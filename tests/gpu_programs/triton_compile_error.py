# mypy: ignore-errors
"""A Triton kernel that can't be compiled: shapes that don't broadcast."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_unlike_shapes(out):
    wide = tl.arange(0, 64)
    narrow = tl.arange(0, 16)
    tl.store(out + wide, wide + narrow)


out = torch.zeros(64, device="cuda")
add_unlike_shapes[(1,)](out)
torch.cuda.synchronize()
print("finished=1")
