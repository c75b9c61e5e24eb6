# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same, with the sum left to PyTorch's own kernels by torch.compiler.disable.

What to look for: distinct_results=1.
"""

import torch

COUNT = 1_000_003  # long enough for many blocks; 30000 and less are summed in one order anyhow
RUNS = 10


@torch.compiler.disable
def cumulative(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(0)


def step(x: torch.Tensor) -> torch.Tensor:
    return cumulative(x)


def distinct(results: list[torch.Tensor]) -> int:
    return len({bytes(result.cpu().view(torch.uint8).numpy()) for result in results})


torch.use_deterministic_algorithms(True)
x = torch.rand(COUNT, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
compiled = torch.compile(step)
eager = [cumulative(x) for _ in range(RUNS)]
results = [compiled(x) for _ in range(RUNS)]
right = x.double().cumsum(0)
print(f"distinct_results_eager={distinct(eager)}")
print(f"distinct_results={distinct(results)}")
print(f"rel_err={max(((result - right).norm() / right.norm()).item() for result in results):.3g}")
