# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A kernel on a grid of 65535 * 32768 blocks, and on one of 65536 * 32768, which are 2^31.

What to look for: the first marks all of its 65535 rows. The second marks none of 65536: it was never launched. No error,
no warning.
"""

import torch
import triton
import triton.language as tl

DEPTH = 2**15  # layers of each row: with one to a block, blocks on the second axis, which may have 65535
LAYERS = 1  # that a block goes through


@triton.jit
def mark(marks, LAYERS: tl.constexpr):
    """Mark the row of each block that has the first layer; the other layers have nothing to do."""
    for layer in range(LAYERS):
        if tl.program_id(1) * LAYERS + layer == 0:
            tl.store(marks + tl.program_id(0), 1)


def marked(rows: int) -> int:
    marks = torch.zeros(rows, dtype=torch.int32, device="cuda")
    mark[(rows, DEPTH // LAYERS)](marks, LAYERS)
    return marks.sum().item()


for rows in (2**16 - 1, 2**16):
    print(f"marked_of_{rows}={marked(rows)}", flush=True)
