# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Flash attention with one query for each of 8192 sequences, then of 8193, and its backward.

What to look for: 8192 sequences have the right gradients. With one more the forward is right, and the backward ends in
"CUDA error: an illegal memory access was encountered". All inputs together take less than a gigabyte.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

HEADS, WIDTH, KEYS = 16, 128, 8  # KEYS: any will do
# The backward rounds the one query up to 128. 8192 * HEADS * 128 * WIDTH elements are 2^31.


def attend(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v)


def relative_error(got: torch.Tensor, right: torch.Tensor) -> float:
    return ((got - right).norm() / right.norm()).item()


torch.manual_seed(0)
for sequences in (8192, 8193):
    q = torch.randn(sequences, HEADS, 1, WIDTH, device="cuda").bfloat16().requires_grad_()
    k, v = (torch.randn(sequences, HEADS, KEYS, WIDTH, device="cuda").bfloat16().requires_grad_() for _ in "kv")
    exact_q = q.detach().double().requires_grad_()
    right = torch.softmax(exact_q @ k.detach().double().mT * WIDTH**-0.5, -1) @ v.detach().double()
    output = attend(q, k, v)
    print(f"output_rel_err_{sequences}={relative_error(output.detach(), right.detach()):.2e}", flush=True)
    gradient = torch.randn_like(output)
    right.backward(gradient.double())
    output.backward(gradient)
    print(f"query_grad_rel_err_{sequences}={relative_error(q.grad, exact_q.grad):.2e}", flush=True)
