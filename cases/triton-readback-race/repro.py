# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A kernel that stores a tile to memory and loads the same tile again, with the same pointers.

What to look for: wrong_launches, in how many launches a value was loaded that is not the one just stored. The compiler
gave store and load different layouts (layouts=2): one thread loads what another thread stores, and nothing orders them.
"""

import re

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, WARPS = 16, 512, 8
WARM, LAUNCHES = 3, 2  # the first launches load the kernel, and take another time


@triton.jit
def readback(buffer, half, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(half + at)  # of float16 a thread loads eight at once, of float32 it can store four
    tl.store(buffer + at, values.to(tl.float32) * 2)
    tl.store(out + at, tl.load(buffer + at))


half = (torch.arange(ROWS * COLUMNS, device="cuda") % 1000 + 1).half()
right = half.float() * 2
wrong = []
for _ in range(WARM + LAUNCHES):
    buffer = torch.zeros(ROWS * COLUMNS, device="cuda")
    out = torch.full_like(buffer, -1)
    kernel = readback[(1,)](buffer, half, out, ROWS, COLUMNS, num_warps=WARPS)
    wrong.append((out != right).sum().item())
layouts = set(re.findall(r"tt\.(?:load|store) .*ptr<f32>, (#\w+)>", kernel.asm["ttgir"]))
print(f"layouts={len(layouts)}")
print(f"wrong_launches={sum(count > 0 for count in wrong[WARM:])}")
print(f"most_wrong_values={max(wrong[WARM:])}")
