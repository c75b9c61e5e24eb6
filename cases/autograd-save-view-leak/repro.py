# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Call a custom autograd.Function that saves a view of its output, and drop the result without a backward.

What to look for: resident_bytes rises by 4 MB a call, the size of the output. Neither del nor gc.collect() gives it back.
"""

import gc

import torch

N = 2**20  # floats: 4 MiB an output, which the allocator takes from the system and gives back at once
CALLS = 30


class Exp(torch.autograd.Function):
    """exp, which needs its own output for the gradient: a usual reason for saving one."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y.view(-1))
        return y

    @staticmethod
    def backward(ctx, gradient):
        (flat,) = ctx.saved_tensors
        return gradient * flat.view_as(gradient)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


x = torch.zeros(N, requires_grad=True)
for i in range(CALLS):
    Exp.apply(x)  # as in validation without no_grad, or a loss that a loop skips
    gc.collect()
    print(f"resident_bytes[{i}]={resident_bytes()}")

Exp.apply(x).sum().backward()
print(f"grad_error={(x.grad - 1).abs().max():g}")
