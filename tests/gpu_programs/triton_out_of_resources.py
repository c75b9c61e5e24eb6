# mypy: ignore-errors
"""A Triton kernel asks for more shared memory than a block can have."""

import torch
import triton
import triton.language as tl


@triton.jit
def huge_tiles(a, b, c, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    tile = rows[:, None] * BLOCK + rows[None, :]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(4):
        acc += tl.dot(tl.load(a + step + tile), tl.load(b + step + tile))
    tl.store(c + tile, acc)


a, b, c = (torch.zeros(256 * 256 + 4, device="cuda") for _ in range(3))
huge_tiles[(1,)](a, b, c, BLOCK=256, num_warps=8, num_stages=4)
torch.cuda.synchronize()
print("finished=1")
