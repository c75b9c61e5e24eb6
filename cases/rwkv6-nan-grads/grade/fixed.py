"""`solve` hands out a gradient of two chunks of 64 tokens, for decays from slow to fast, by the kernel `dq_kernel`.

dq_i is the sum of dA_ij k_j exp(w_{j+1} + ... + w_{i-1}) over the j < i in i's chunk. It is finite for every decay.
"""

import numpy as np
import triton
import triton.language as tl

T, K, CHUNK, SUB = 128, 16, 64, 16
np.seterr(all="ignore")


# incl and excl are the running sums of w in the chunk, with and without the row itself. For a matmul the exponent is
# split at a reference, exp(excl_i - ref) * exp(ref - incl_j): neither is over 1 if ref lies between the two rows.
@triton.jit
def dq_kernel(dA, k, incl, excl, dq, K: tl.constexpr, CHUNK: tl.constexpr, SUB: tl.constexpr):
    top = tl.program_id(0) * SUB
    sub = tl.program_id(0) % (CHUNK // SUB)
    col, own = tl.arange(0, K), tl.arange(0, SUB)
    row = top + own
    excl_i = tl.load(excl + row[:, None] * K + col[None, :])
    ref = tl.load(incl + (top - 1) * K + col, mask=(col < K) & (sub > 0), other=0.0)  # of this chunk
    acc = tl.zeros([SUB, K], dtype=tl.float32)
    for block in range(0, sub):
        j = block * SUB + own
        at = (top - sub * SUB + j)[:, None] * K + col[None, :]
        scaled = tl.load(k + at) * tl.exp(ref[None, :] - tl.load(incl + at))
        acc += tl.dot(tl.load(dA + row[:, None] * CHUNK + j[None, :]), scaled, allow_tf32=False)
    acc = acc * tl.exp(excl_i - ref[None, :])
    for j in range(0, SUB):
        at = (top + j) * K + col
        dA_j = tl.load(dA + row * CHUNK + sub * SUB + j)
        term = dA_j[:, None] * tl.load(k + at)[None, :] * tl.exp(excl_i - tl.load(incl + at)[None, :])
        acc += tl.where((own > j)[:, None], term, 0.0)
    tl.store(dq + row[:, None] * K + col[None, :], acc)


class InPlace:
    """What Triton's interpreter asks of a tensor, over a NumPy array that it reads and writes."""

    def __init__(self, array):
        self.array, self.dtype = array, array.dtype

    def data_ptr(self):
        return self.array.ctypes.data

    def itself(self, *args, **kwargs):
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = storage_offset = size = stride = itself

    def numpy(self):
        return self.array


def inputs(seed):
    draw = np.random.RandomState(seed)
    dA, k = (draw.standard_normal(shape).astype(np.float32) for shape in ((T, CHUNK), (T, K)))
    return {"dA": dA, "k": k, "w": -np.exp(draw.standard_normal((T, K)) + 0.5).astype(np.float32)}


def solve(dA, k, w):
    incl = np.cumsum(w.reshape(T // CHUNK, CHUNK, K), 1, dtype=np.float32).reshape(T, K)
    out = InPlace(np.zeros((T, K), np.float32))
    dq_kernel[(T // SUB,)](*(InPlace(x) for x in (dA, k, incl, incl - w)), out, K, CHUNK, SUB)
    return {"dq": out.numpy()}
