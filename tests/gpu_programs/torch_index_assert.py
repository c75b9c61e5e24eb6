# mypy: ignore-errors
"""An index out of range: the device asserts. The line that launches is not the line that raises."""

import torch


def launch_the_faulty_lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index]


def do_something_harmless(rows: torch.Tensor) -> torch.Tensor:
    return rows * 2 + 1


def read_the_result(rows: torch.Tensor) -> float:
    return rows.sum().item()


table = torch.zeros(4, 8, device="cuda")
index = torch.tensor([0, 7], device="cuda")
torch.cuda.synchronize()
rows = launch_the_faulty_lookup(table, index)
rows = do_something_harmless(rows)
print("launched=1", flush=True)
print(f"total={read_the_result(rows)}")
