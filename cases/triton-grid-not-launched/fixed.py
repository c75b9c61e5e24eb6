# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same rows, on two grids of half as many blocks.

What to look for: all rows are marked, of 65535 and of 65536.
"""

import torch
import triton
import triton.language as tl

DEPTH = 2**15  # blocks on the second axis, which may have 65535


@triton.jit
def mark(marks, first):
    """Mark the row of each block of the first layer; the other layers have nothing to do."""
    if tl.program_id(1) == 0:
        tl.store(marks + first + tl.program_id(0), 1)


def marked(rows: int) -> int:
    marks = torch.zeros(rows, dtype=torch.int32, device="cuda")
    half = rows // 2
    mark[(half, DEPTH)](marks, 0)
    mark[(rows - half, DEPTH)](marks, half)
    return marks.sum().item()


for rows in (2**16 - 1, 2**16):
    print(f"marked_of_{rows}={marked(rows)}", flush=True)
