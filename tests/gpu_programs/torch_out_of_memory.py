# mypy: ignore-errors
"""Asks PyTorch for more memory than any device has."""

import torch

torch.zeros(1, device="cuda")
torch.empty(1 << 45, device="cuda")
