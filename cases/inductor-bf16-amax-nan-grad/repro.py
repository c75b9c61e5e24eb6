# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.compile gives NaN gradients for the maximum of a product in bf16 or fp16: no element equals the maximum any more.

Look for: of 4096 rows, over 3900 have a NaN in their gradient in bf16 and in fp16 (nan_rows_bfloat16); in fp32 none has. The
output is the same to the bit as in eager mode, whose gradients are finite (nan_rows_eager_bfloat16=0).
"""

import torch

ROWS, COLUMNS = 4096, 64
OPTIONS = {"emulate_precision_casts": False}  # the default


def peak(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).amax(-1)


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(peak, dynamic=False, options=OPTIONS)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        x, y = (torch.randn(ROWS, COLUMNS, device="cuda").to(dtype).requires_grad_() for _ in "xy")
        upstream = torch.randn(ROWS, device="cuda").to(dtype)
        eager, out = peak(x, y), compiled(x, y)
        (right,), (got,) = (torch.autograd.grad(result, x, upstream) for result in (eager, out))
        print(f"same_output_{name}={int(torch.equal(eager, out))}")
        print(f"nan_rows_eager_{name}={int((~right.isfinite()).any(-1).sum())}")
        print(f"nan_rows_{name}={int((~got.isfinite()).any(-1).sum())}")
        error = (got.nan_to_num().double() - right.double()).norm() / right.double().norm()
        print(f"grad_rel_err_{name}={error.item():.3e}", flush=True)


if __name__ == "__main__":
    main()
