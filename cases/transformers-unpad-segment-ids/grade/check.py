"""By counting the samples' tokens."""

import torch


def reference(masks):
    ends = []
    for mask in masks:
        counts = torch.bincount(mask)[1:]
        ends.append(torch.cat([torch.zeros(1, dtype=torch.int), counts.cumsum(0).int()]))
    return {"rows": [mask.nonzero()[:, 0] for mask in masks], "ends": ends}
