# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Attention with a mask of more than 2**32 values applies the mask's first rows to its last queries.

Look for: the last 64 queries may see the first key alone, so their output is that key's value. They get what the mask's
row 0 gives (rel_err_to_row_0 is rounding error), which is all keys: rel_err_last near 1. No error, no warning. The queries
before are right (rel_err_first).
"""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

KEYS, DIM = 8192, 64
QUERIES = 2**32 // KEYS + 64  # the mask's last 64 rows begin at element 2**32
CHUNK = QUERIES  # queries in one call


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, DIM, device="cuda", dtype=torch.bfloat16) for n in (QUERIES, KEYS, KEYS))
    mask = torch.zeros(QUERIES, KEYS, device="cuda", dtype=torch.bfloat16)  # 8 GiB; 0 hides nothing
    mask[-64:, 1:] = float("-inf")

    pairs = zip(q.split(CHUNK, 2), mask.split(CHUNK), strict=True)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):  # what PyTorch takes by itself where cuDNN's is not there
        out = torch.cat([F.scaled_dot_product_attention(part, k, v, attn_mask=rows) for part, rows in pairs], 2)[0, 0]

    def unmasked(queries: slice) -> torch.Tensor:
        return (q[0, 0, queries].double() @ k[0, 0].double().T / DIM**0.5).softmax(-1) @ v[0, 0].double()

    print(f"rel_err_first={relative_error(out[:64], unmasked(slice(64))):.3e}")
    print(f"rel_err_before={relative_error(out[-128:-64], unmasked(slice(-128, -64))):.3e}")
    print(f"rel_err_last={relative_error(out[-64:], v[0, 0, 0].double().expand(64, DIM)):.3e}")
    print(f"rel_err_to_row_0={relative_error(out[-64:], unmasked(slice(-64, None))):.3e}", flush=True)


if __name__ == "__main__":
    main()
