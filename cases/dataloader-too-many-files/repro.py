# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Keep what a DataLoader with one worker gives, batch by batch, as an evaluation loop that collects its labels does.

What to look for: RuntimeError, Too many open files, after somewhat fewer batches than the process may have files open.
Each batch is eight bytes.
"""

import resource

import torch
from torch.utils.data import DataLoader, TensorDataset

LIMIT = 1024  # `ulimit -n` of most shells and containers; set here so that the script needs no particular one
BATCHES = 1100  # more than that

resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
labels = TensorDataset(torch.arange(BATCHES))
kept = []
for (label,) in DataLoader(labels, batch_size=1, num_workers=1):
    kept.append(label)
print(f"wrong_labels={int((torch.cat(kept) != torch.arange(BATCHES)).sum())}")
print(f"batches={len(kept)}")
