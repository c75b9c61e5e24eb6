# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A chunked gradient that is NaN where tokens decay fast: 0 * inf. Look at the mask of `ref` in dq_kernel.

repro.py takes the row before the block as its reference even where that row belongs to the chunk before; fixed.py
takes 0 there. Both print, for six decays, how many of the 8192 gradients are not finite: repro.py has some as soon as
the 64 log decays of a chunk sum to less than -88.72, fixed.py none. TRITON_INTERPRET=1 runs both without a GPU.
"""

import os, sys

import numpy as np
import triton
import triton.language as tl

T, K, V = 128, 64, 64  # two chunks: the first has no chunk before it, so the second is the first that can fail
CHUNK, SUB = 64, 16  # as upstream has them; the sums of log decays start again at every chunk


# dq_i = sum of dA_ij k_j exp(w_{j+1} + ... + w_{i-1}) over the j < i in i's chunk, K columns side by side. With `incl`
# and `excl` the running sums of w, with and without the row itself, the exponent is excl_i - incl_j. For a matmul
# it is split at a reference, exp(excl_i - ref) * exp(ref - incl_j): neither is over 1 if ref lies between the two rows.
@triton.jit
def dq_kernel(dA, k, incl, excl, dq, K: tl.constexpr, CHUNK: tl.constexpr, SUB: tl.constexpr):
    top = tl.program_id(0) * SUB  # the block's first row
    sub = tl.program_id(0) % (CHUNK // SUB)  # its place in the chunk; 0: no earlier block, so acc stays 0
    col, own = tl.arange(0, K), tl.arange(0, SUB)
    row = top + own
    excl_i = tl.load(excl + row[:, None] * K + col[None, :])
    ref = tl.load(incl + (top - 1) * K + col, mask=(col < K) & (sub > 0), other=0.0)
    acc = tl.zeros([SUB, K], dtype=tl.float32)
    for block in range(0, sub):  # earlier blocks of the chunk
        j = block * SUB + own
        at = (top - sub * SUB + j)[:, None] * K + col[None, :]
        scaled = tl.load(k + at) * tl.exp(ref[None, :] - tl.load(incl + at))
        acc += tl.dot(tl.load(dA + row[:, None] * CHUNK + j[None, :]), scaled, allow_tf32=False)
    acc = acc * tl.exp(excl_i - ref[None, :])
    for j in range(0, SUB):  # its own rows, one by one, with the exponent whole
        at = (top + j) * K + col
        dA_j = tl.load(dA + row * CHUNK + sub * SUB + j)
        term = dA_j[:, None] * tl.load(k + at)[None, :] * tl.exp(excl_i - tl.load(incl + at)[None, :])
        acc += tl.where((own > j)[:, None], term, 0.0)
    tl.store(dq + row[:, None] * K + col[None, :], acc)


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
    np.seterr(all="ignore")  # the overflow is what this is about
    to_device = InPlace
else:
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA-capable device is detected; TRITON_INTERPRET=1 runs this on the CPU, in Triton's interpreter")

    def to_device(array):
        return torch.from_numpy(array).cuda()


draw = np.random.RandomState(0).standard_normal  # a stream that is the same in every NumPy
k, v, do, z = (draw(shape).astype(np.float32) for shape in ((T, K), (T, V), (T, V), (T, K)))
dA = np.concatenate([do[top : top + CHUNK] @ v[top : top + CHUNK].T for top in range(0, T, CHUNK)])  # [T, CHUNK]


def exact_dq(w):
    """The recurrence in float64: dq_i = S_i do_i, S_{i+1} = diag(exp w_i) S_i + k_i v_i^T, from S = 0 in each chunk."""
    w, k64, v64, do64 = (x.astype(np.float64) for x in (w, k, v, do))
    dq = np.empty((T, K))
    for i in range(T):
        S = np.zeros((K, V)) if i % CHUNK == 0 else S
        dq[i] = S @ do64[i]
        S = np.exp(w[i])[:, None] * S + np.outer(k64[i], v64[i])
    return dq


decays = {f"w{w}": np.full((T, K), w, np.float32) for w in ("-1.38", "-1.40", "-1.50", "-3")}
decays["logsigmoid_randn"] = -np.log1p(np.exp(-z))  # RWKV6's decay before 2024-05-13
decays["minus_exp_randn"] = -np.exp(z)  # and from then on
elsewhere, errors = 0, []
for name, w in decays.items():
    incl = np.cumsum(w.reshape(T // CHUNK, CHUNK, K), 1, dtype=np.float32).reshape(T, K)
    out = to_device(np.full((T, K), 7, np.float32))
    dq_kernel[(T // SUB,)](*(to_device(x) for x in (dA, k, incl, incl - w)), out, K, CHUNK, SUB)
    dq, exact = out.cpu().numpy(), exact_dq(w)
    finite = np.isfinite(dq)
    elsewhere += np.count_nonzero(~np.delete(finite, np.s_[CHUNK : CHUNK + SUB], 0))
    errors.append(np.abs(dq - exact)[finite].max() / np.abs(exact).max())
    print(f"nonfinite_{name}={np.count_nonzero(~finite)}", flush=True)
print(f"nonfinite_outside_first_block_of_chunk={elsewhere}")
print(f"worst_rel_err_of_finite={max(errors):.2e}")
