# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same sum, by the operation for one tensor, which is compiled into a buffer of its own and a copy.

Look for: no element is wrong, with 8 rows and with 4096.
"""

import torch


def mirror(x: torch.Tensor) -> torch.Tensor:
    x.add_(x.flip(0))
    return x


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(mirror, dynamic=False)
    for rows in (8, 4096):
        x = torch.rand(rows, rows, device="cuda")
        due = x + x.flip(0)
        print(f"wrong_eager_{rows}={int((mirror(x.clone()) != due).sum())}")
        print(f"wrong_{rows}={int((compiled(x.clone()) != due).sum())}", flush=True)


if __name__ == "__main__":
    main()
