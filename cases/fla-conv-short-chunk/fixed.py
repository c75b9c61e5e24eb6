# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "einops==0.8.2", "packaging==26.3", "fla-core==0.6.0"]
# ///
"""The same chunks, with the release that has the fix.

What to look for: the gradients are those of the whole sequence, whatever the first chunk.
"""

import torch
from fla.modules.convolution import causal_conv1d
from triton.runtime.autotuner import Autotuner

Autotuner.prune_configs = lambda self, _: self.configs[:1]  # any will do; trying them all takes most of the time

BATCH, TOKENS, WIDTH = 2, 16, 64  # any will do
TAPS = 4  # of the filter, as in all models that have it

torch.manual_seed(0)
x, dy = torch.randn(2, BATCH, TOKENS, WIDTH, device="cuda")
weight = torch.randn(WIDTH, TAPS, device="cuda")
exact_x = x.double().requires_grad_()
padded = torch.nn.functional.pad(exact_x, (0, 0, TAPS - 1, 0))
exact_y = sum(padded[:, i : i + TOKENS] * weight.double()[:, i] for i in range(TAPS))
exact_y.backward(dy.double())


def relative_error(got: torch.Tensor, right: torch.Tensor) -> float:
    return ((got - right).norm() / right.norm()).item()


for first in (3, 2, 1):
    chunked = x.clone().requires_grad_()
    y1, state = causal_conv1d(chunked[:, :first], weight, output_final_state=True)
    y2, _ = causal_conv1d(chunked[:, first:], weight, initial_state=state)
    y = torch.cat([y1, y2], 1)
    y.backward(dy)
    print(f"output_rel_err_{first}={relative_error(y.detach(), exact_y.detach()):.2e}")
    print(f"input_grad_rel_err_{first}={relative_error(chunked.grad, exact_x.grad):.2e}")
