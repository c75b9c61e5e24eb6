# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A loop with num_stages=2 that stores a block of values, and loads the same block again.

What to look for: stale_values, how many of the loaded values are not those stored in the line before, and
zeros_among_them: what was in the buffer before the kernel ran. The buffer itself is right (wrong_in_buffer=0).
"""

import torch
import triton
import triton.language as tl

PROGRAMS, COUNT, BLOCK = 128, 4096, 128
STAGES = 2


@triton.jit
def fill(buffer, loaded, COUNT: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first = tl.program_id(0) * COUNT
    for start in tl.range(0, COUNT, BLOCK, num_stages=STAGES):
        at = first + start + tl.arange(0, BLOCK)
        tl.store(buffer + at, (at + 1).to(tl.float32))
        tl.store(loaded + at, tl.load(buffer + at))


buffer = torch.zeros(PROGRAMS * COUNT, device="cuda")
loaded = torch.full_like(buffer, -1)
fill[(PROGRAMS,)](buffer, loaded, COUNT, BLOCK, STAGES)
right = torch.arange(1, PROGRAMS * COUNT + 1, device="cuda").float()
print(f"stale_values={(loaded != right).sum().item()}")
print(f"zeros_among_them={(loaded == 0).sum().item()}")
print(f"wrong_in_buffer={(buffer != right).sum().item()}")
