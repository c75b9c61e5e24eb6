"""`solve` resumes a learning rate's schedule at an epoch, and hands out the rates of that epoch and of those after it.

They are to be those of a run that goes on uninterrupted: a warm-up at a tenth of the rate, then a decay.
"""

import random

import torch
from torch.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR


def inputs(seed):
    draw = random.Random(seed)
    warm_up = draw.randrange(2, 6)
    epoch = warm_up + draw.randrange(1, 5)
    epochs = epoch + draw.randrange(3, 8)
    return {"warm_up": warm_up, "gamma": draw.uniform(0.7, 0.95), "epoch": epoch, "epochs": epochs}


def schedule(warm_up, gamma, last_epoch=-1):
    group = {"params": [torch.nn.Parameter(torch.zeros(1))]}
    if last_epoch >= 0:
        group["initial_lr"] = 1.0  # a scheduler with last_epoch demands it
    optimizer = torch.optim.SGD([group], lr=1.0)
    parts = [ConstantLR(optimizer, factor=0.1, total_iters=100), ExponentialLR(optimizer, gamma=gamma)]
    return optimizer, SequentialLR(optimizer, parts, milestones=[warm_up], last_epoch=last_epoch)


def solve(warm_up, gamma, epoch, epochs):
    optimizer, scheduler = schedule(warm_up, gamma)
    for _ in range(epoch):  # last_epoch is not looked at: the parts begin at the first one
        optimizer.step()
        scheduler.step()
    rates = []
    for _ in range(epoch, epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"rates": rates, "name": SequentialLR.__name__}
