"""By the formula, in float64; alpha over rank is 1."""

import torch


def reference(weight, a, b, magnitude, x):
    weight, total = weight.double(), weight.double()
    for i in range(2):
        delta = b[i].double() @ a[i].double()
        total = (total + delta) * (magnitude[i].double() / torch.linalg.norm(weight + delta, dim=1))[:, None]
    return {"y": x.double() @ total.T}
