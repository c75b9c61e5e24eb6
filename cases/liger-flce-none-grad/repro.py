# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "packaging==26.3", "liger-kernel==0.8.1"]
# ///
"""Fused linear cross entropy with a loss for each token, and a weight for each that comes after.

What to look for: the losses are right. The gradients are not: all of them come out with the first token's weight, and
where that one is masked they are zero, every one. No error, no warning.
"""

import torch
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

TOKENS, WIDTH, VOCABULARY = 64, 32, 100  # any will do

torch.manual_seed(0)
x = torch.randn(TOKENS, WIDTH, device="cuda")
head = torch.randn(VOCABULARY, WIDTH, device="cuda") * 0.3
target = torch.randint(VOCABULARY, (TOKENS,), device="cuda")
loss_of_each = LigerFusedLinearCrossEntropyLoss(reduction="none")


def relative_error(got: torch.Tensor, right: torch.Tensor) -> float:
    return ((got - right).norm() / right.norm()).item()


for name, first in (("equal", 1.0), ("uneven", 0.5), ("masked", 0.0)):
    weights = torch.ones(TOKENS, device="cuda") if name == "equal" else torch.rand(TOKENS, device="cuda")
    weights[0] = first
    mine = [t.clone().requires_grad_() for t in (x, head)]
    losses = loss_of_each(mine[1], mine[0], target)
    (losses * weights).sum().backward()
    right = [t.double().requires_grad_() for t in (x, head)]
    right_losses = torch.nn.functional.cross_entropy(right[0] @ right[1].T, target, reduction="none")
    (right_losses * weights).sum().backward()
    print(f"loss_rel_err_{name}={relative_error(losses.detach(), right_losses.detach()):.2e}")
    print(f"input_grad_rel_err_{name}={relative_error(mine[0].grad, right[0].grad):.2e}")
    print(f"head_grad_rel_err_{name}={relative_error(mine[1].grad, right[1].grad):.2e}")
