# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same transposition, compiled without changing the order of loops after the scheduler has looked at dependencies.

Look for: no element is wrong, with 16 rows and with 4096.
"""

import torch

OPTIONS = {"loop_ordering_after_fusion": False}  # the order of the loops is fixed before kernels are merged


def transpose(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.T * 1.0)
    return x


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(transpose, dynamic=False, options=OPTIONS)
    for rows in (16, 4096):
        x = torch.rand(rows, rows, device="cuda")
        due = x.T.clone()
        print(f"wrong_eager_{rows}={int((transpose(x.clone()) != due).sum())}")
        print(f"wrong_{rows}={int((compiled(x.clone()) != due).sum())}", flush=True)


if __name__ == "__main__":
    main()
