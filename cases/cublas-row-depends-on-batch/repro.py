# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same 256 rows through one linear layer: all at once, and one by one.

What to look for: differing_values, how many of the results are not the same bits, and in how many rows; the other rows of
the batch have changed them. errors_ratio, both errors against float64, is about 1: neither result is better.
"""

import torch
from torch.nn import functional

ROWS, WIDTH = 256, 4096


def linear(rows: torch.Tensor) -> torch.Tensor:
    return functional.linear(rows, weight)


generator = torch.Generator("cuda").manual_seed(0)
weight = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16, generator=generator) * WIDTH**-0.5
x = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16, generator=generator)

together = linear(x)
alone = torch.cat([linear(row) for row in x.split(1)])
again = torch.cat([linear(row) for row in x.split(1)])
right = x.double() @ weight.double().T
print(f"differing_values={(together != alone).sum().item()}")
print(f"differing_rows={(together != alone).any(1).sum().item()}")
print(f"differing_when_repeated={(again != alone).sum().item()}")
print(f"errors_ratio={((together - right).norm() / (alone - right).norm()).item():.3f}")
