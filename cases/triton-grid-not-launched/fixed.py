# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same rows and layers with 256 layers to a block: grids of 65535 * 128 blocks and of 65536 * 128, which is 2^23.

What to look for: all rows are marked, of 65535 and of 65536.
"""

import torch
import triton
import triton.language as tl

DEPTH = 2**15  # layers of each row: with one to a block, blocks on the second axis, which may have 65535
LAYERS = 256  # that a block goes through


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
