# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same loop, with tensors that pass between processes by the name of their shared memory.

What to look for: all 1100 batches arrive, and the labels in them are right.
"""

import resource

import torch
from torch.utils.data import DataLoader, TensorDataset

LIMIT = 1024  # `ulimit -n` of most shells and containers; set here so that the script needs no particular one
BATCHES = 1100  # more than that

torch.multiprocessing.set_sharing_strategy("file_system")
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
labels = TensorDataset(torch.arange(BATCHES))
kept = []
for (label,) in DataLoader(labels, batch_size=1, num_workers=1):
    kept.append(label)
print(f"wrong_labels={int((torch.cat(kept) != torch.arange(BATCHES)).sum())}")
print(f"batches={len(kept)}")
