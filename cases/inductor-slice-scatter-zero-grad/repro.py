# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["numpy==2.3.5", "torch==2.11.0"]
# ///
"""torch.compile loses the gradient of a buffer that is written into by slice, and then summed over the same dimension.

Look for: the compiled output is right, and so is the gradient of what was written in. The gradient of the buffer is all
zero (x_grad_ratio_0_6=0), or too large by 20/13 (x_grad_ratio_5_12=1.538): it depends on whether the slice begins at 0.
No error, no warning. With a GPU it runs there, without one on the CPU: the two backends of the compiler do the same.
"""

from collections.abc import Callable

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SLICES = ((13, 0, 6), (20, 5, 12))  # columns, start, end, as in the report: a slice with column 0, and one without
ROWS, WIDTH = 4, 33  # any will do


def write_and_sum(x: torch.Tensor, y: torch.Tensor, start: int) -> torch.Tensor:
    """x with y in place of its columns from `start` on, summed over the columns."""
    buffer = x.clone()
    buffer = torch.slice_scatter(buffer, y, dim=1, start=start, end=start + y.shape[1])
    return buffer.sum(1)


def run(
    function: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor, start: int, gradient: torch.Tensor
) -> list[torch.Tensor]:
    """The output, and the gradients of x and y from a gradient of the output."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    out = function(x, y, start)
    out.backward(gradient)
    return [out.detach(), x.grad, y.grad]


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    print(f"on_gpu={int(DEVICE == 'cuda')}")
    for columns, start, end in SLICES:
        x = torch.randn(ROWS, columns, WIDTH, device=DEVICE)
        y = torch.randn(ROWS, end - start, WIDTH, device=DEVICE)
        gradient = torch.randn(ROWS, WIDTH, device=DEVICE)
        exact = run(write_and_sum, x.double(), y.double(), start, gradient.double())
        got = run(torch.compile(write_and_sum), x, y, start, gradient)
        torch._dynamo.reset()  # or the second slice would be compiled for any start
        for name, ours, right in zip(("out", "x_grad", "y_grad"), got, exact, strict=True):
            print(f"{name}_rel_err_{start}_{end}={relative_error(ours, right):.3e}")
        print(f"x_grad_ratio_{start}_{end}={(got[1].abs().sum() / exact[1].abs().sum()).item():.4f}", flush=True)


if __name__ == "__main__":
    main()
