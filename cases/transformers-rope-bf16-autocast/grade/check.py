"""By the formula, in float64."""

import torch


def reference(positions, base):
    angles = positions[0].double()[:, None] / base ** (torch.arange(0, 64, 2).double() / 64)
    angles = torch.cat([angles, angles], -1)
    return {"cos": angles.cos(), "sin": angles.sin()}
