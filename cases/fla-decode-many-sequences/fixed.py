# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "einops==0.8.2", "packaging==26.3", "fla-core==0.6.0"]
# ///
"""The same two batches, with the release that has the fix.

What to look for: both are right. All blocks are on the axis of the grid that ends at 2^31 - 1.
"""

import torch
from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

HEADS = 32  # of the values, as in Qwen3-Next: 2047 * 32 = 65504 blocks fit on a grid's axis of 65535, 2048 * 32 don't
WIDTH = 64  # of a head: any will do


def exact(q, k, v, g, beta, state):
    """One step of the recurrence in float64."""
    q, k, v, g, beta, state = (x.double() for x in (q, k, v, g, beta, state))
    state = state * g.exp()[..., None, None]
    news = beta[..., None] * (v - torch.einsum("nhkv,nhk->nhv", state, k))
    state = state + torch.einsum("nhk,nhv->nhkv", k, news)
    return torch.einsum("nhkv,nhk->nhv", state, q) * WIDTH**-0.5


torch.manual_seed(0)
for sequences in (2047, 2048):
    q, k, v = torch.randn(3, sequences, HEADS, WIDTH, device="cuda")
    k = torch.nn.functional.normalize(k, dim=-1)
    g = torch.nn.functional.logsigmoid(torch.randn(sequences, HEADS, device="cuda"))
    beta = torch.rand(sequences, HEADS, device="cuda")
    state = torch.randn(sequences, HEADS, WIDTH, WIDTH, device="cuda")
    right = exact(q, k, v, g, beta, state)
    step = [x[:, None] for x in (q, k, v, g)]  # one token of each sequence
    output, _ = fused_recurrent_gated_delta_rule(*step, beta=beta[:, None], initial_state=state)
    print(f"rel_err_{sequences}={(output[:, 0] - right).norm() / right.norm():.2e}", flush=True)
