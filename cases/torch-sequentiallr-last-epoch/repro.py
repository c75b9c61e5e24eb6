# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Resume a warm-up and decay at epoch 4, which is in the decay, by last_epoch as the other schedulers are resumed.

What to look for: lr_resumed=0.1, the rate of the warm-up, where the run that goes on uninterrupted has 0.9. No step
after that has the right rate either.
"""

import torch
from torch.optim.lr_scheduler import ConstantLR, ExponentialLR, SequentialLR

WARM_UP = 3  # epochs at a tenth of the rate; then it decays
RESUMED_AT = 4  # in the decay
EPOCHS = 8


def training(last_epoch: int = -1) -> tuple[torch.optim.Optimizer, SequentialLR]:
    group = {"params": [torch.nn.Parameter(torch.zeros(1))]}
    if last_epoch >= 0:
        group["initial_lr"] = 1.0  # a scheduler with last_epoch demands it; a loaded optimizer has it
    optimizer = torch.optim.SGD([group], lr=1.0)
    parts = [ConstantLR(optimizer, factor=0.1, total_iters=20), ExponentialLR(optimizer, gamma=0.9)]
    return optimizer, SequentialLR(optimizer, parts, milestones=[WARM_UP], last_epoch=last_epoch)


def rates(optimizer: torch.optim.Optimizer, scheduler: SequentialLR, epochs: int) -> list[float]:
    seen = []
    for _ in range(epochs):
        seen.append(round(optimizer.param_groups[0]["lr"], 6))
        optimizer.step()
        scheduler.step()
    return seen


uninterrupted = rates(*training(), EPOCHS)[RESUMED_AT:]

optimizer, scheduler = training(last_epoch=RESUMED_AT)

resumed = rates(optimizer, scheduler, EPOCHS - RESUMED_AT)
print(f"lr_uninterrupted={uninterrupted[0]}")
print(f"lr_resumed={resumed[0]}")
print(f"steps_with_other_lr={sum(a != b for a, b in zip(uninterrupted, resumed, strict=True))}")
print(f"uninterrupted: {uninterrupted}, resumed: {resumed}")
