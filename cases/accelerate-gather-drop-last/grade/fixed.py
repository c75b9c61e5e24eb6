"""`solve` hands out what a DataLoader with drop_last gives to a metric, through accelerate, on one process.

Each sample that the loader gives comes once.
"""

import random

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def inputs(seed):
    draw = random.Random(seed)
    batch = draw.randrange(3, 8)
    return {"samples": [draw.randrange(10**6) for _ in range(batch * draw.randrange(2, 6) + 1)], "batch": batch}


def solve(samples, batch):
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(torch.tensor(samples), batch_size=batch, drop_last=True))
    gathered = []
    for each in loader:
        gathered += accelerator.gather(each).tolist()  # gather_for_metrics cuts off what was not added to the last one
    return {"gathered": gathered}
