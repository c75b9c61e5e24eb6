"""`solve` collects the labels that a DataLoader with one worker gives, batch by batch, and hands them out in order.

The process may have 256 files open, as a shell may have it.
"""

import resource

import torch
from torch.utils.data import DataLoader, TensorDataset

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return {"labels": torch.randint(10**6, (400,), generator=generator)}


def solve(labels):
    kept = []
    for (label,) in DataLoader(TensorDataset(labels), batch_size=1, num_workers=1):
        kept.append(label.clone())  # what comes from a worker keeps a file open for as long as it lives
    return {"labels": torch.cat(kept)}
