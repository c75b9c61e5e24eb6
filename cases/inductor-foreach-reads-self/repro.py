# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A compiled torch._foreach_add_ whose operand is read from the same tensor reads rows that were written already.

Look for: x + x.flip(0) is symmetric. With 8 rows it is right; with 4096 some of the rows are not (wrong_4096), in each run
another number of them. Eager mode and x.add_(x.flip(0)), compiled, are right.
"""

import torch


def mirror(x: torch.Tensor) -> torch.Tensor:
    torch._foreach_add_([x], [x.flip(0)])
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
