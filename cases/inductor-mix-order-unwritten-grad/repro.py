# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.compile never writes parts of a parameter's gradient: modulated LayerNorms with one table of scales and shifts.

Look for: in eager mode each of the table's four gradients is right. Compiled, they are whatever the memory held
(here 7: left_as_it_was counts those values), and grad_rel_err_max is far from 0. The gradient of x is right. No error.
"""

import torch
import torch.nn.functional as F

ROWS, WIDTH = 16384, 512  # the two kinds of reduction are merged from 5 * 2**20 values on
MARK = 7.0
OPTIONS = {"triton.mix_order_reduction": True}  # the default since 2.10


def block(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Two LayerNorms, each scaled and shifted by two rows of the table, as in a diffusion transformer's block."""
    scale1, shift1, scale2, shift2 = table.chunk(4, dim=1)
    h = F.layer_norm(x, (WIDTH,)) * (1 + scale1) + shift1
    return F.layer_norm(h, (WIDTH,)) * (1 + scale2) + shift2


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, ROWS, WIDTH, device="cuda")
    table = 0.1 * torch.randn(1, 4, WIDTH, device="cuda")
    gradient = torch.randn_like(x)
    xs = [t.requires_grad_() for t in (x.double(), table.double())]
    exact_x, exact_table = torch.autograd.grad(block(*xs), xs, gradient.double())

    for name, function in (("eager", block), ("compiled", torch.compile(block, options=OPTIONS))):
        leaves = [t.clone().requires_grad_() for t in (x, table)]
        out = function(*leaves)
        fill = [torch.full_like(table, MARK) for _ in range(64)]
        del fill  # free memory of a gradient's size, that holds the mark
        got_x, got_table = torch.autograd.grad(out, leaves, gradient)
        errors = [relative_error(got_table[:, i], exact_table[:, i]) for i in range(4)]
        print(f"x_grad_rel_err_{name}={relative_error(got_x, exact_x):.3e}")
        print(f"table_grad_rel_err_max_{name}={max(errors):.3e}")
        print(f"wrong_parts_{name}={sum(not error < 1e-3 for error in errors)}")
        print(f"left_as_it_was_{name}={int((got_table == MARK).sum())}", flush=True)


if __name__ == "__main__":
    main()
