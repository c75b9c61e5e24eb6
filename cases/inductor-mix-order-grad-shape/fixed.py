# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same normalisation, compiled without merging reductions over rows with reductions over columns.

Look for: the gradient is right for both shapes of the weight.
"""

import torch

ROWS, WIDTH = 32768, 256  # reductions over rows and columns are merged from 5 * 2**20 values on
OPTIONS = {"triton.mix_order_reduction": False}  # each reduction in a kernel of its own


def normalise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, keepdim=True) * weight


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(normalise, options=OPTIONS)
    x = torch.rand(1, ROWS, WIDTH, device="cuda", requires_grad=True)
    for shape in ((WIDTH,), (1, 1, WIDTH)):
        weight = torch.ones(shape, device="cuda", requires_grad=True)
        exact = weight.detach().double().requires_grad_()
        (right,) = torch.autograd.grad(normalise(x.double(), exact).square().sum(), exact)
        compiled(x, weight).square().sum().backward()
        name = "x".join(map(str, shape))
        print(f"grad_rel_err_{name}={((weight.grad.double() - right).norm() / right.norm()).item():.3e}", flush=True)


if __name__ == "__main__":
    main()
