# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "einops==0.8.2", "packaging==26.3", "fla-core==0.6.0"]
# ///
"""The short convolution's backward, told where sequences start, with the two sequences as a batch of two.

What to look for: the output and the gradient of the input are right. The gradients of weight and bias are sums over
memory of which half was never written. PyTorch fills such memory with NaN here, so they are NaN, every value.
"""

import torch
from fla.modules.convolution import causal_conv1d
from triton.runtime.autotuner import Autotuner

Autotuner.prune_configs = lambda self, _: self.configs[:1]  # any will do; trying them all takes most of the time

BATCH, TOKENS, WIDTH, TAPS = 2, 512, 64, 4  # TAPS of the filter; any will do

torch.manual_seed(0)
x, dy = torch.randn(2, BATCH, TOKENS, WIDTH, device="cuda")
weight, bias = torch.randn(WIDTH, TAPS, device="cuda"), torch.randn(WIDTH, device="cuda")
starts = torch.arange(BATCH + 1, device="cuda") * TOKENS
exact = [t.double().requires_grad_() for t in (x, weight, bias)]
padded = torch.nn.functional.pad(exact[0], (0, 0, TAPS - 1, 0))
exact_y = sum(padded[:, i : i + TOKENS] * exact[1][:, i] for i in range(TAPS)) + exact[2]
exact_y.backward(dy.double())


def relative_error(got: torch.Tensor, right: torch.Tensor) -> float:
    return ((got - right).norm() / right.norm()).item()


shape = (BATCH, TOKENS, WIDTH)
got = [t.clone().requires_grad_() for t in (x, weight, bias)]
torch.use_deterministic_algorithms(True)  # what is allocated and not written is NaN: the same in every run
y, _ = causal_conv1d(got[0].view(shape), got[1], got[2], cu_seqlens=starts)
y.backward(dy.view(shape))
print(f"output_rel_err={relative_error(y.detach().view_as(x), exact_y.detach()):.2e}")
for name, mine, right in zip(("input", "weight", "bias"), got, exact, strict=True):
    print(f"{name}_grad_not_finite={mine.grad.isfinite().logical_not().sum().item()}")
    print(f"{name}_grad_rel_err={relative_error(mine.grad, right.grad):.2e}")
