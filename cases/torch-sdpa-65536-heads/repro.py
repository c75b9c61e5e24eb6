# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Scaled dot-product attention in float32, with a batch folded into the heads: 65535 of them, then 65536.

What to look for: 65535 heads are right against float64. One more, and the launch is refused: "CUDA error: invalid
argument".
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
    output = scaled_dot_product_attention(q, k, v)
    right = exact(q, k, v)
    print(f"rel_err_{heads}={(output - right).norm() / right.norm():.2e}", flush=True)
