# mypy: ignore-errors
"""The first matrix product comes after a device-side assertion that nobody has noticed yet."""

import torch

a = torch.ones(64, 64, device="cuda")
torch.cuda.synchronize()
rows = a[torch.tensor([64], device="cuda")]
print(f"total={(a @ a).sum().item()}")
