# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same rows, padded with zeros to one size of batch whatever their number.

What to look for: differing_values=0. A row's result no longer depends on what else is computed.
"""

import torch
from torch.nn import functional

ROWS, WIDTH = 256, 4096


def linear(rows: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(rows, (0, 0, 0, ROWS - len(rows)))
    return functional.linear(padded, weight)[: len(rows)]


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
