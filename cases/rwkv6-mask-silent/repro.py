# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""FLA's fused recurrent RWKV6 with an initial state: gradients that are wrong where K != V, and no error.

repro.py and fixed.py are the same script; what differs is flash-linear-attention's fla/ops/rwkv6/recurrent_fuse.py, from
the commit before the fix and from the fix. It and the two files that it imports must be importable; case.yaml has the
commits. For sizes of 9 to 16 the backward's tile is square, so the transposed mask of the state fits, and masks the wrong
elements. repro.py has errors over 0.1 where K != V; where K == V the mask is its own transpose. fixed.py has rounding
errors alone. TRITON_INTERPRET=1 runs them without a GPU.
"""
import os, sys

import numpy as np
import torch
import triton

import fla.ops.utils
from fla.ops.rwkv6.recurrent_fuse import fused_recurrent_rwkv6

T = 8      # a few steps: the initial state decays, so its error is largest at the first
TILE = 16  # what the backward takes for sizes of 9 to 16: the next power of 2, at most 16 for K and 64 for V

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
if not interpreted and not torch.cuda.is_available():
    sys.exit("no CUDA-capable device is detected; TRITON_INTERPRET=1 runs this on the CPU, in Triton's interpreter")
device = "cpu" if interpreted else "cuda"
for each in vars(fla.ops.utils).values():
    if isinstance(each, triton.runtime.Autotuner):
        each.configs = each.configs[:1]  # Triton's interpreter can't time the others

def gradients(K, V):
    """Yield name and error of the gradients of q and w over the largest value, against the recurrence in float64."""
    draw = np.random.RandomState(0).standard_normal  # a stream that is the same in every NumPy
    k, v, dy, s0 = (torch.from_numpy(draw(shape)).float() for shape in ((T, K), (T, V), (T, V), (K, V)))
    w, q = -torch.from_numpy(draw((T, K))).float().exp(), torch.from_numpy(draw((T, K))).float()

    # Where K < V the transposed mask lets through rows K to V - 1 of the state, which has only K. So that the same is
    # read everywhere, the allocation goes on behind the state up to the end of the tile, full of 1e6. Those rows land
    # in columns that the store's mask drops, so they do not show in the gradients.
    buffer = torch.full(((TILE - 1) * V + TILE,), 1e6)
    buffer[:K * V] = s0.flatten()
    state = buffer.to(device)[:K * V].view(1, 1, K, V)

    # y_t = q_t S_t, where S_0 = s0 and S_{t+1} = diag(exp w_t) S_t + k_t v_t^T: the bonus of a step's own key is 0 here
    q64, w64, S, y = q.double().requires_grad_(), w.double().requires_grad_(), s0.double(), []
    for t in range(T):
        y.append(q64[t] @ S)
        S = w64[t].exp()[:, None] * S + torch.outer(k[t].double(), v[t].double())
    torch.stack(y).backward(dy.double())

    q, k, v, w, dy = (x[None, None].to(device) for x in (q, k, v, w, dy))
    leaves = q.requires_grad_(), w.requires_grad_()
    u = torch.zeros(1, K, device=device)
    fused_recurrent_rwkv6(q, k, v, w, u, scale=1.0, initial_state=state)[0].backward(dy)
    for name, leaf, exact in zip("qw", leaves, (q64.grad, w64.grad)):
        yield name, (leaf.grad[0, 0].cpu() - exact).abs().max() / exact.abs().max()

for K, V in ((10, 16), (16, 10), (10, 10)):
    for name, error in gradients(K, V):
        print(f"d{name}_rel_err_k{K}_v{V}={error:.3e}", flush=True)
