# mypy: ignore-errors
"""A fault that nobody asks about: the script ends before anything synchronises, with events and a graph still alive."""

import torch

table = torch.zeros(4, device="cuda")
event = torch.cuda.Event(enable_timing=True)
stream = torch.cuda.Stream()
pinned = torch.zeros(1024, pin_memory=True)
torch.cuda.synchronize()
rows = table[torch.tensor([7], device="cuda")]
event.record()
with torch.cuda.stream(stream):
    copied = pinned.to("cuda", non_blocking=True)
print("launched=1", flush=True)
