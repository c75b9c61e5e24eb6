# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same products, of an arange that the compiled graph gets as data.

Look for: none is wrong.
"""

import torch

ROWS = 5000
STRIDE = 1_000_000
TRACED = False  # arange is made outside of it, and comes in as data


def positions(device: torch.device) -> torch.Tensor:
    return torch.arange(ROWS, device=device)


if not TRACED:
    positions = torch.compiler.disable(positions)


def by_number(like: torch.Tensor) -> torch.Tensor:
    return positions(like.device) * STRIDE


def by_tensor(like: torch.Tensor) -> torch.Tensor:
    return positions(like.device) * torch.tensor([STRIDE], device=like.device)


def main() -> None:
    like = torch.zeros(1, device="cuda")
    due = torch.tensor([row * STRIDE for row in range(ROWS)])  # Python's integers have no end
    for name, offsets in (("number", by_number), ("tensor", by_tensor)):
        got = torch.compile(offsets)(like)
        error = got.cpu() - due
        print(f"dtype_is_int64_{name}={int(got.dtype == torch.int64)}")
        print(f"wrong_eager_{name}={int((offsets(like).cpu() != due).sum())}")
        print(f"wrong_{name}={int((error != 0).sum())}")
        print(f"first_wrong_{name}={next((row for row in range(ROWS) if error[row]), -1)}")
        print(f"not_by_2_to_32_{name}={int((error % 2**32 != 0).sum())}", flush=True)


if __name__ == "__main__":
    main()
