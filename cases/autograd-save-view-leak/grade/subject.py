"""`solve` evaluates a function with a gradient of its own, drops the result, and hands out some values and gradients.

The process must not grow with the calls.
"""

import gc

import torch

N = 2**21  # floats: 8 MiB


def inputs(seed):
    return {"x": torch.randn(N, generator=torch.Generator().manual_seed(seed))}


class Exp(torch.autograd.Function):
    """exp, which needs its own output for the gradient."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y.view(-1))
        return y

    @staticmethod
    def backward(ctx, gradient):
        (flat,) = ctx.saved_tensors
        return gradient * flat.view_as(gradient)


def solve(x):
    x = x.requires_grad_()
    some = Exp.apply(x)[:: 2**14].detach().clone()  # as in validation: no backward
    few = x[:64].detach().clone().requires_grad_()
    Exp.apply(few).sum().backward()
    gc.collect()
    return {"some": some, "gradients": few.grad}
