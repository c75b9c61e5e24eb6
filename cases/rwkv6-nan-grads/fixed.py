# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.2.2", "triton==2.2.0", "numpy==1.26.4", "setuptools==69.5.1"]
# ///
"""The same with upstream's files of the commit that takes 0 as the reference in a chunk's first block: none is NaN."""

import os
import sys

import numpy as np
import torch

from fla.ops.rwkv6 import chunk

T, K, V = 128, 64, 64  # two chunks: the first has no chunk before it, so the second is the first that can fail
CHUNK, SUB = 64, 16  # as upstream has them; the sums of log decays start again at every chunk

device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
if device == "cpu":  # there is nothing to choose the fastest configuration by: the interpreter takes the first
    for kernel in (chunk.chunk_rwkv6_fwd_kernel_cum, sys.modules["fla.ops.utils"].chunk_reversed_cumsum_fwd_kernel):
        kernel.configs = kernel.configs[:1]
elif not torch.cuda.is_available():
    sys.exit("no CUDA-capable device is detected; TRITON_INTERPRET=1 runs this on the CPU, in Triton's interpreter")

draw = np.random.RandomState(0).standard_normal  # a stream that is the same in every NumPy
k, v, do, z, r, u = (torch.from_numpy(draw(shape).astype(np.float32)) for shape in [(T, K)] * 5 + [K])


def reference(r, k, v, w, u):
    """The recurrence: o_t = r_t (S_t + diag(u) k_t v_t^T), S_{t+1} = diag(exp w_t) S_t + k_t v_t^T, from S = 0."""
    rows, state = [], torch.zeros(K, V, dtype=r.dtype)
    for t in range(T):
        kv = k[t][:, None] * v[t]
        rows.append(r[t] @ (state + u[:, None] * kv))
        state = w[t].exp()[:, None] * state + kv
    return torch.stack(rows)


def gradients(w):
    """Upstream's forward and backward: the output, and the inputs with their gradients."""
    given = [x.to(device)[None, None].requires_grad_() for x in (r, k, v, w)] + [u.to(device)[None].requires_grad_()]
    o, _ = chunk.chunk_rwkv6(*given, scale=1.0)
    (o * do.to(device)).sum().backward()  # begins with an operation of PyTorch's, as the backward of any model does
    return o.detach(), given


def nonfinite(x):
    return int((~x.isfinite()).sum())


decays = {f"w{w}": torch.full((T, K), float(w)) for w in ("-1.38", "-1.40", "-1.50", "-3")}
decays["logsigmoid_randn"] = torch.nn.functional.logsigmoid(z)  # RWKV6's decay before 2024-05-13
decays["minus_exp_randn"] = -z.exp()  # and from then on
outputs, elsewhere, errors = 0, 0, []
for name, w in decays.items():
    exact = [x.double().requires_grad_() for x in (r, k, v, w, u)]
    reference(*exact).backward(do.double())
    o, given = gradients(w)
    dr, exact_dr = given[0].grad[0, 0].cpu(), exact[0].grad
    finite = dr.isfinite()
    outputs += nonfinite(o)
    elsewhere += nonfinite(dr[:CHUNK]) + nonfinite(dr[CHUNK + SUB :])
    errors.append(float((dr - exact_dr)[finite].abs().max() / exact_dr.abs().max()))
    print(f"nonfinite_{name}={nonfinite(dr)}", flush=True)
print(f"nonfinite_outputs={outputs}")
print(f"nonfinite_outside_first_block_of_chunk={elsewhere}")
print(f"worst_rel_err_of_finite={max(errors):.2e}")

# The last decays again: the gradient of w is a running sum back over time, the one of v has nothing to do with it.
dr, _, dv, dw, _ = (x.grad for x in given)
print(f"dw_nonfinite_in_the_first_chunk={nonfinite(dw[:, :, :CHUNK])}")
print(f"dv_nonfinite_before_clipping={nonfinite(dv)}")
torch.nn.utils.clip_grad_norm_(given, 1.0)
print(f"dv_nonfinite_after_clipping={nonfinite(dv)}")
