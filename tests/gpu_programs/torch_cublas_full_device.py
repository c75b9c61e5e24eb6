# mypy: ignore-errors
"""The device is full when cuBLAS wants its workspace. Takes all of the device's memory for a moment: run it alone."""

import torch

taken = []
size = torch.cuda.mem_get_info()[0]
a = torch.ones(64, 64, device="cuda")
while size >= 1 << 20:
    try:
        taken.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        size //= 2
print(f"free={torch.cuda.mem_get_info()[0]}", flush=True)
print(f"total={(a @ a).sum().item()}")
