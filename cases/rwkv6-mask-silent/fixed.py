# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same with upstream's file as the fix left it, which builds the mask as [BV, BK]: dq is right for all sizes."""

import os, sys
from unittest.mock import MagicMock, patch

import numpy as np
import triton

# The file defines autograd functions too, which nothing of here calls. Stand-ins have the place of what they need.
with patch.dict(sys.modules, {name: MagicMock() for name in ("torch", "torch.cuda.amp", "fla.ops.utils", "fla.utils")}):
    from fla.ops.rwkv6.recurrent_fuse import fused_recurrent_rwkv6_bwd_kernel_dq as dq_kernel

T = 8  # a few steps: the initial state decays, so its error is largest at the first
BK = BV = 16  # what the file takes for sizes of 9 to 16: the next power of 2, at most 16 for K and 64 for V


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
    arrays = dict(k=k, v=v, w=w, u=np.zeros(K, np.float32), do=dy, initial_state=buffer, h0=buffer)
    arrays |= dict(dq_aux=np.zeros_like(k))
    given = {name: to_device(array) for name, array in arrays.items()}
    given |= dict(s_qk_h=T * K, s_qk_t=K, s_qk_d=1, s_vo_h=T * V, s_vo_t=V, s_vo_d=1, s_k_h=T * K, s_v_h=T * V)
    given |= dict(dq=dq, B=1, H=1, T=T, scale=1.0, BK=BK, BV=BV, DK=K, DV=V, K=K, V=V)
    given |= dict(USE_INITIAL_STATE=True, REVERSE=False)
    # The fix came with other names for some arguments: each version takes those that it has.
    dq_kernel[(1, 1, 1)](**{name: given[name] for name in dq_kernel.arg_names}, num_warps=1)
    return np.abs(dq.cpu().numpy() - exact).max() / np.abs(exact).max()


for K, V in ((10, 16), (16, 10), (10, 10)):
    print(f"dq_rel_err_k{K}_v{V}={dq_rel_err(K, V):.3e}", flush=True)
