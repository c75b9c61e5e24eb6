# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "transformers==4.46.1", "accelerate==1.1.0"]
# ///
"""Sample packing whose patch went to the wrong place: the flash kernel is told of 520192 rows in a tensor of 8128.

What to look for: Axolotl marks packed samples with a mask of segment ids (1 1 1 2 2 3 .. 0) and replaces transformers'
helper by its own, which understands it, unless the user trusts remote code. Then transformers sums the ids as if they
were 0/1: end=520192 where rows=8128, 4.88 GiB past the end of the queries. PyTorch's own varlen flash kernel, in the place
of flash-attn's, believes it: "an illegal memory access was encountered". On the CPU the lengths are held against the
tensor: IndexError.
axolotl/monkeypatch/multipack.py and the two files that it imports must be importable; case.yaml has their commits.
"""

import torch
import torch.nn.functional as F
import transformers.modeling_flash_attention_utils as library
from axolotl.monkeypatch.multipack import patch_for_multipack
from axolotl.monkeypatch.utils import get_unpad_data
from transformers import Qwen2Config

ROW, SAMPLES, LENGTH = 8192, 127, 64  # a row of 8192: 127 samples of 64 tokens and 64 of padding, without which no mask
HEADS, KV_HEADS, DIM = 40, 8, 128  # attention of Qwen2.5-14B, the model of the report: 10 KiB a row of queries
device = "cuda" if torch.cuda.is_available() else "cpu"


def alone(q, k, v):
    """Causal attention over one sample, in float64. q, k, v: (rows, heads, dim)."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v))
    future = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
    weights = (q @ k.transpose(1, 2) / DIM**0.5).masked_fill(future, float("-inf")).softmax(-1)
    return (weights @ v).transpose(0, 1)


def varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **_):
    """In the place of flash-attn's function of this name. Sequence i has the rows cu_seqlens[i]:cu_seqlens[i + 1]."""
    ends, rows = cu_seqlens_q.tolist(), len(q)
    past = max(0, ends[-1] - rows) * q[0].nbytes / 2**30
    print(f"rows={rows}\nend={ends[-1]}\nsequences={len(ends) - 1}\npast_the_queries_gib={past:.2f}", flush=True)
    if (
        q.is_cuda
    ):  # dropout 0, causal, no debug mask. The kernel checks shapes and types, but not what is in cu_seqlens.
        lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        out = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, 0.0, True, False)[0]
        torch.cuda.synchronize()
        return out
    if ends[-1] > rows:
        raise IndexError(f"attention is told of rows up to {ends[-1]} in a tensor of {rows} rows")
    return torch.cat([alone(q[a:b], k[a:b], v[a:b]) for a, b in zip(ends, ends[1:])]).to(q.dtype)


# What transformers takes from flash-attn, if that is installed
library.flash_attn_varlen_func, library._flash_supports_window_size = varlen_attention, False
library.index_first_axis = lambda x, rows: x[rows]
library.pad_input = lambda x, rows, batch, length: (
    x.new_zeros(batch * length, *x.shape[1:]).index_copy(0, rows, x).view(batch, length, *x.shape[1:])
)
library.is_flash_attn_greater_or_equal = lambda _version: False

config = Qwen2Config()  # Qwen2.5's: no auto_map, so no code of its own
trust_remote_code = True  # in the user's configuration of Axolotl
patch_for_multipack(
    "qwen2", has_remote_code="AutoModelForCausalLM" in getattr(config, "auto_map", {})
)  # as it then does
print(f"library_patched={int(library._get_unpad_data is get_unpad_data)}", flush=True)

ids = torch.arange(1, SAMPLES + 1, device=device).repeat_interleave(LENGTH)
mask = F.pad(ids, (0, ROW - len(ids)))[None]
torch.manual_seed(0)
q, k, v = (torch.randn(1, ROW, n, DIM, device=device, dtype=torch.bfloat16) for n in (HEADS, KV_HEADS, KV_HEADS))
out = library._flash_attention_forward(q, k, v, mask, ROW, is_causal=True)

worst = largest = 0.0
for i in range(1, SAMPLES + 1):  # each sample by itself
    mine = mask[0] == i
    reference = alone(*(x[0, mine] for x in (q, k, v)))
    worst = max(worst, float((out[0, mine] - reference).abs().max()))
    largest = max(largest, float(reference.abs().max()))
print(f"attention_rel_err={worst / largest:.3g}")
assert worst < 0.02 * largest, "finished, but the samples of the row attended to each other"
