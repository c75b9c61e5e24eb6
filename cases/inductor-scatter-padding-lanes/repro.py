# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.compile adds a constant once for each lane of a kernel's block, those behind the end of the data included.

Look for: counting 100 elements of one group gives 128 (counted_100=128), the next power of 2; a mean over 1000 is divided by
1024. With 128 elements both are right, and with two groups. Eager mode is right. No error.
"""

import torch

GROUPS = 1


def count(group: torch.Tensor) -> torch.Tensor:
    return torch.zeros(GROUPS, device=group.device).index_add(0, group, torch.ones(len(group), device=group.device))


def mean(x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The mean of each group, as a graph network's pooling has it."""
    return torch.zeros(GROUPS, x.shape[1], device=x.device).index_add(0, group, x) / count(group)[:, None]


def main() -> None:
    torch.manual_seed(0)
    for size in (100, 128, 1000):
        torch.compiler.reset()  # or the next size is compiled for any size
        x, group = torch.randn(size, 16, device="cuda") + 1, torch.zeros(size, dtype=torch.long, device="cuda")
        print(f"counted_eager_{size}={int(count(group)[0])}")
        print(f"counted_{size}={int(torch.compile(count, dynamic=False)(group)[0])}")
        ratio = torch.compile(mean, dynamic=False)(x, group)[0].double() / x.double().mean(0)
        print(f"mean_over_due_{size}={ratio.median().item():.5f}", flush=True)


if __name__ == "__main__":
    main()
