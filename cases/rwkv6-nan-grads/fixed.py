# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""FLA's chunked RWKV6: gradients that are NaN where tokens decay fast, from 0 * inf.

repro.py and fixed.py are the same script; what differs is flash-linear-attention's fla/ops/rwkv6/chunk.py, from the commit
before the fix and from the fix. It and the two files that it imports must be importable; case.yaml has the commits. Both
count, for several decays, the gradients of q and w that are not finite: repro.py has some as soon as the 64 log decays of a
chunk sum to less than -88.72, fixed.py none. TRITON_INTERPRET=1 runs them without a GPU.
"""
import os, sys

import numpy as np
import torch
import triton

import fla.ops.rwkv6.chunk
import fla.ops.utils
from fla.ops.rwkv6.chunk import chunk_rwkv6

T, K, V = 128, 64, 64  # two chunks: the first has no chunk before it, so the second is the first that can fail
CHUNK, SUB = 64, 16    # upstream's; the sums of log decays start again at every chunk

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
if not interpreted and not torch.cuda.is_available():
    sys.exit("no CUDA-capable device is detected; TRITON_INTERPRET=1 runs this on the CPU, in Triton's interpreter")
device = "cpu" if interpreted else "cuda"
np.seterr(all="ignore")  # the overflow is what this is about; the interpreter's arrays are NumPy's
for module in (fla.ops.utils, fla.ops.rwkv6.chunk):
    for each in vars(module).values():
        if isinstance(each, triton.runtime.Autotuner):
            each.configs = each.configs[:1]  # Triton's interpreter can't time the others

draw = np.random.RandomState(0).standard_normal  # a stream that is the same in every NumPy
k, v, dy, z, q = (torch.from_numpy(draw((T, n))).float() for n in (K, V, V, K, K))
u = torch.from_numpy(draw((1, K))).float()

def exact(q, k, v, w, u):
    """The recurrence: y_t = q_t (S_t + diag(u) k_t v_t^T), S_{t+1} = diag(exp w_t) S_t + k_t v_t^T, from S = 0."""
    S, y = torch.zeros(K, V, dtype=torch.float64), []
    for t in range(T):
        kv = torch.outer(k[t], v[t])
        y.append(q[t] @ (S + u[0][:, None] * kv))
        S = w[t].exp()[:, None] * S + kv
    return torch.stack(y)

constants = ("-1.38", "-1.40", "-1.50", "-3")  # each in a quarter of the channels, which do not mix in these gradients
decays = {"constants": torch.tensor([float(each) for each in constants]).repeat_interleave(K // 4).repeat(T, 1)}
decays["minus_exp_randn"] = -z.exp()
elsewhere, errors = 0, []
for name, w in decays.items():
    doubles = [x.double().requires_grad_() for x in (q, k, v, w, u)]
    right = exact(*doubles)
    right.backward(dy.double())
    inputs = [*(x[None, None] for x in (q, k, v, w)), u]
    leaves = [x.to(device, copy=True).requires_grad_() for x in inputs]
    y, _ = chunk_rwkv6(*leaves, scale=1.0)
    y.backward(dy[None, None].to(device))
    for got, wanted in [(y.detach(), right.detach()), *((leaf.grad, x.grad) for leaf, x in zip(leaves, doubles))]:
        got = got.cpu().view_as(wanted)
        errors.append(((got - wanted).abs()[got.isfinite()].max() / wanted.abs().max()).item())
    lost_q, lost_w = (~leaves[at].grad[0, 0].isfinite().cpu() for at in (0, 3))
    elsewhere += lost_q[:CHUNK].sum().item() + lost_q[CHUNK + SUB:].sum().item()
    counts = zip((f"w{each}" for each in constants), lost_q.chunk(4, 1)) if name == "constants" else [(name, lost_q)]
    for decay, lost in counts:
        print(f"nonfinite_dq_{decay}={lost.sum().item()}", flush=True)
    print(f"nonfinite_dw_{name}={lost_w.sum().item()}", flush=True)
print(f"nonfinite_dq_outside_first_block_of_chunk={elsewhere}")
print(f"worst_rel_err_of_finite={max(errors):.2e}")
