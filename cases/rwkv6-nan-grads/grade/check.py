"""The sum itself, in float64."""

import numpy as np


def reference(dA, k, w):
    w, k, dA = (each.astype(np.float64) for each in (w, k, dA))
    dq = np.zeros_like(k)
    for i in range(len(k)):
        for j in range(i // 64 * 64, i):
            dq[i] += dA[i, j % 64] * k[j] * np.exp(w[j + 1 : i].sum(0))
    return {"dq": dq}
