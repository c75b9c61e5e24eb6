# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A gradient kernel that compiles, runs, raises nothing, and is wrong where K != V. Look at `keep` in dq_kernel.

repro.py builds that mask as [BK, BV] for a tile that is [BV, BK], as rwkv6-backward does; here BK == BV, so it fits and
masks the wrong elements. Its dq_rel_err is over 0.1 where K != V and rounding error where K == V, for there the mask is
its own transpose. fixed.py builds it as [BV, BK] and is right for all. TRITON_INTERPRET=1 runs both without a GPU.
"""

import os, sys

import numpy as np
import triton
import triton.language as tl

T = 8  # a few steps: the initial state decays, so its error is largest at the first
BK = BV = 16  # what the failing backward took for sizes of 9 to 16: the next power of 2, at most 16 for K and 64 for V


@triton.jit
def dq_kernel(k, v, w, s0, dy, dq, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    rk, rv = tl.arange(0, BK), tl.arange(0, BV)  # one tile holds the whole state
    keep = (rk < K)[:, None] & (rv < V)[None, :]  # [BK, BV]
    S = tl.load(s0 + rk[None, :] * V + rv[:, None], mask=keep, other=0.0)  # [BV, BK] of the [K, V] state
    for t in range(0, T):
        k_t = tl.load(k + t * K + rk, mask=rk < K, other=0.0)
        w_t = tl.load(w + t * K + rk, mask=rk < K, other=0.0)
        v_t = tl.load(v + t * V + rv, mask=rv < V, other=0.0)
        dy_t = tl.load(dy + t * V + rv, mask=rv < V, other=0.0)
        tl.store(dq + t * K + rk, tl.sum(S * dy_t[:, None], 0), mask=rk < K)
        S = S * tl.exp(w_t)[None, :] + v_t[:, None] * k_t[None, :]


class InPlace:
    """What Triton's interpreter asks of a tensor, over a NumPy array that it reads and writes: torch is not needed."""

    def __init__(self, array):
        self.array, self.dtype = array, array.dtype

    def data_ptr(self):
        return self.array.ctypes.data

    def itself(self, *args, **kwargs):
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = storage_offset = size = stride = itself

    def numpy(self):
        return self.array


if os.environ.get("TRITON_INTERPRET") == "1":
    to_device = InPlace
else:
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA-capable device is detected; TRITON_INTERPRET=1 runs this on the CPU, in Triton's interpreter")

    def to_device(array):
        return torch.from_numpy(array).cuda()


def dq_rel_err(K, V):
    """Largest error of the kernel's dq over the largest value, against the recurrence in float64."""
    draw = np.random.RandomState(0).standard_normal  # a stream that is the same in every NumPy
    k, v, dy, s0 = (draw(shape).astype(np.float32) for shape in ((T, K), (T, V), (T, V), (K, V)))
    w = -np.exp(draw((T, K))).astype(np.float32)

    # Where K < V the transposed mask lets through rows K to V - 1 of the state, which has only K. So that the same is
    # read everywhere, the allocation goes on behind the state up to the end of the tile, full of 1e6. Those rows land
    # in columns of S that the store's mask drops, so they do not show in dq.
    buffer = np.full((BK - 1) * V + BV, 1e6, np.float32)
    buffer[: K * V] = s0.ravel()

    # y_t = q_t S_t, so dq_t = S_t dy_t, where S_0 = s0 and S_{t+1} = diag(exp w_t) S_t + k_t v_t^T
    S, exact = s0.astype(np.float64), np.empty((T, K))
    for t in range(T):
        exact[t] = S @ dy[t]
        S = np.exp(w[t].astype(np.float64))[:, None] * S + np.outer(k[t].astype(np.float64), v[t])

    dq = to_device(np.zeros((T, K), np.float32))
    dq_kernel[(1,)](*(to_device(x) for x in (k, v, w, buffer, dy)), dq, T, K, V, BK, BV, num_warps=1)
    return np.abs(dq.cpu().numpy() - exact).max() / np.abs(exact).max()


for K, V in ((10, 16), (16, 10), (10, 10)):
    print(f"dq_rel_err_k{K}_v{V}={dq_rel_err(K, V):.3e}", flush=True)
