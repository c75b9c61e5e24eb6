# mypy: ignore-errors
"""A custom backward launches the faulty kernel; the error surfaces on autograd's way back to Python."""

import torch


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        bad = gradient[torch.tensor([9], device="cuda")]
        return gradient * bad.sum().item()


x = torch.ones(4, device="cuda", requires_grad=True)
Lookup.apply(x).sum().backward()
print("finished=1")
