# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same packing; where the patch goes is decided by the model's config, not by what the user allows.

What to look for: the library has the helper that understands segment ids. The kernel gets 127 sequences that end at
row 8128 of 8128 (past_the_queries_gib=0), and every sample's attention is that of the sample by itself.
"""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

ROW, SAMPLES, LENGTH = 8192, 127, 64  # a row of 8192: 127 samples of 64 tokens and 64 of padding, without which no mask
HEADS, KV_HEADS, DIM = 40, 8, 128  # attention of Qwen2.5-14B, the model of the report: 10 KiB a row of queries


# --- the library's part (transformers from 4.43 to 4.52)
def lengths_of_padding_mask(mask):
    """One sequence for each row of a 0/1 mask: its length is the sum."""
    return mask.sum(-1, dtype=torch.int32)


library = SimpleNamespace(lengths=lengths_of_padding_mask, qwen2=SimpleNamespace(lengths=lengths_of_padding_mask))


def attention(q, k, v, mask):
    """q, k, v: (1, row, heads, dim). Drops the padding, hands the rest to the varlen kernel, puts it back."""
    kept = mask.flatten().nonzero().flatten()
    lengths = library.lengths(mask)
    ends = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = [x.flatten(0, 1)[kept] for x in (q, k, v)]
    end, longest = int(ends[-1]), int(lengths.max())
    past = max(0, end - len(kept)) * rows[0][0].nbytes / 2**30
    print(f"rows={len(kept)}\nend={end}\nsequences={len(lengths)}\npast_the_queries_gib={past:.2f}", flush=True)
    out = torch.zeros_like(q.flatten(0, 1))
    # dropout 0, causal, no debug mask. The kernel checks shapes and types, but not what is in `ends`.
    out[kept] = torch.ops.aten._flash_attention_forward(*rows, ends, ends, longest, longest, 0.0, True, False)[0]
    torch.cuda.synchronize()
    return out.view_as(q)


# --- the trainer's part (Axolotl)
def lengths_of_segments(mask):
    """One sequence for each run of equal ids above 0."""
    return torch.cat([torch.unique_consecutive(row[row > 0], return_counts=True)[1] for row in mask]).int()


def patch_for_multipack(config, trust_remote_code):
    brings_its_own_code = "AutoModelForCausalLM" in config.get("auto_map", {})  # whatever the user allows
    if brings_its_own_code:
        library.qwen2.lengths = lengths_of_segments  # where the helper used to be: read by nobody now
    else:
        library.lengths = lengths_of_segments


# A model that does bring its own code: what must be patched is there, and the library is to be left alone.
patch_for_multipack({"model_type": "qwen2", "auto_map": {"AutoModelForCausalLM": "own.Own"}}, trust_remote_code=True)
print(f"own_code_patched={int(library.qwen2.lengths is lengths_of_segments)}")
print(f"library_patched_for_own_code={int(library.lengths is lengths_of_segments)}", flush=True)
library.lengths = library.qwen2.lengths = lengths_of_padding_mask

ids = torch.arange(1, SAMPLES + 1, device="cuda").repeat_interleave(LENGTH)
mask = F.pad(ids, (0, ROW - len(ids)))[None]
torch.manual_seed(0)
q, k, v = (torch.randn(1, ROW, n, DIM, device="cuda", dtype=torch.bfloat16) for n in (HEADS, KV_HEADS, KV_HEADS))
patch_for_multipack({"model_type": "qwen2"}, trust_remote_code=True)  # the model's config.json has no auto_map
out = attention(q, k, v, mask)

worst = largest = 0.0
for i in range(1, SAMPLES + 1):  # each sample by itself, in float64
    mine = mask[0] == i
    one, keys, values = (x[0, mine].double().transpose(0, 1) for x in (q, k, v))
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, 0) for x in (keys, values))
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device="cuda").triu(1)
    weights = (one @ keys.transpose(1, 2) / DIM**0.5).masked_fill(future, float("-inf")).softmax(-1)
    reference = (weights @ values).transpose(0, 1)
    worst = max(worst, float((out[0, mine] - reference).abs().max()))
    largest = max(largest, float(reference.abs().max()))
print(f"attention_rel_err={worst / largest:.3g}")
assert worst < 0.02 * largest, "finished, but the samples of the row attended to each other"
