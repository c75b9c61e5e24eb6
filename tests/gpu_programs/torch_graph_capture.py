# mypy: ignore-errors
"""A CUDA graph that is right: what is asked for while it is captured comes from PyTorch's cache, or from nowhere."""

import torch

given = torch.arange(64.0, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    doubled = given * 2
graph.replay()
print(f"last={doubled[-1].item():g}")
