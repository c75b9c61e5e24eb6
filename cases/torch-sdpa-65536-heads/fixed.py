# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same attention, with heads and batch exchanged.

What to look for: 65535 and 65536 heads are right against float64.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

TOKENS, WIDTH = 10, 16  # any will do


def exact(q, k, v):
    q, k, v = q.double(), k.double(), v.double()
    return torch.softmax(q @ k.mT * WIDTH**-0.5, -1) @ v


torch.manual_seed(0)
for heads in (65535, 65536):
    q, k, v = torch.randn(3, 1, heads, TOKENS, WIDTH, device="cuda")
    as_batch = (x.transpose(0, 1) for x in (q, k, v))  # a batch is cut into pieces of 65535, heads are not
    output = scaled_dot_product_attention(*as_batch).transpose(0, 1)
    right = exact(q, k, v)
    print(f"rel_err_{heads}={(output - right).norm() / right.norm():.2e}", flush=True)
