# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "transformers==4.45.2"]
# ///
"""The same three samples and the same model, with sequence boundaries where the library looks for them.

What to look for: a 0/1 mask with one sample per row gives the helper's 6 rows in 3 sequences that end at row 6. Packed
samples go without a mask: their positions start again at 0, and the model's attention gets sequences of 5, 9, 3 and
(the padding) 7 rows that end at row 24 of 24. The hidden states are those of each sample on its own.
No GPU and no flash-attn: what goes wrong is host arithmetic, and everything up to the kernel's door is the library's.
"""

import torch
import transformers.modeling_flash_attention_utils as fa
import transformers.models.qwen2.modeling_qwen2 as qwen2
from transformers import Qwen2Config, Qwen2Model

ROW = 24  # 17 tokens padded to a multiple of 8; with no padding at all the model drops the mask and nothing shows


def varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, causal=True, **_):
    """Stands in for flash_attn_varlen_func: rows (total, heads, dim), sequence i is cu_seqlens[i]:cu_seqlens[i + 1]."""
    ends, rows = cu_seqlens_q.tolist(), q.shape[0]
    if not REACHED:  # once, not for every layer
        REACHED.append(ends)
        print(f"model_rows={rows}\nmodel_end={ends[-1]}\nmodel_sequences={len(ends) - 1}", flush=True)
    if ends[-1] > rows:
        raise IndexError(f"attention is told of rows up to {ends[-1]} in a tensor of {rows} rows")
    out = torch.empty_like(q)
    for start, end in zip(ends, ends[1:], strict=False):
        heads_first = (x[start:end].repeat_interleave(q.shape[1] // x.shape[1], 1).transpose(0, 1) for x in (q, k, v))
        each = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=causal)
        out[start:end] = each.transpose(0, 1)
    return out


REACHED = []


def use_flash_attention(model):
    """Put the model on the library's flash attention path, with the stand-in where flash-attn's kernel would be."""
    model.config._attn_implementation = "flash_attention_2"  # set late: the constructor insists on a GPU
    if hasattr(fa, "_lazy_imports"):  # transformers 5: one function hands out what flash-attn provides
        fa._lazy_imports = lambda *_, **__: (None, varlen_attention, None, fa._pad_input, fa._unpad_input)
        return
    fa.flash_attn_varlen_func, fa._flash_supports_window_size = varlen_attention, False
    fa.index_first_axis = lambda x, rows: x[rows]
    fa.pad_input = lambda x, rows, batch, length: (
        x.new_zeros(batch * length, *x.shape[1:]).index_copy(0, rows, x).view(batch, length, *x.shape[1:])
    )
    qwen2._flash_attention_forward = fa._flash_attention_forward
    for i, layer in enumerate(model.layers):
        flash = qwen2.Qwen2FlashAttention2(model.config, i).double()
        flash.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = flash


# 1. the helper alone
mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]])  # one row per sample: each token has 1, padding has 0
rows, cu_seqlens, _ = fa._get_unpad_data(mask)
print(f"helper_rows={len(rows)}\nhelper_end={int(cu_seqlens[-1])}\nhelper_sequences={len(cu_seqlens) - 1}", flush=True)

# 2. a model end to end: 5 + 9 + 3 = 17 tokens in a row of 24, each sample's positions from 0
torch.manual_seed(0)
lengths = [5, 9, 3]
samples = [torch.randint(1, 100, (1, n)) for n in lengths]
model = Qwen2Model(
    Qwen2Config(  # tiny and random: 2 layers, 4 heads over 2 key/value heads
        vocab_size=100, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager",
    )
).double().eval()  # fmt: skip
with torch.no_grad():
    alone = torch.cat([model(s, use_cache=False).last_hidden_state[0] for s in samples])  # float64, unpacked
    use_flash_attention(model)
    padding = ROW - sum(lengths)
    packed = torch.nn.functional.pad(torch.cat(samples, 1), (0, padding))
    positions = torch.cat([torch.arange(n) for n in [*lengths, padding]])[None]
    mask = None  # positions that start again at 0 say where samples begin; the padding counts as a fourth sample
    hidden = model(packed, attention_mask=mask, position_ids=positions, use_cache=False).last_hidden_state
error = float((hidden[0, : len(alone)] - alone).abs().max() / alone.abs().max())
print(f"hidden_rel_err={error:.3g}")
assert error < 1e-5, "finished, but the samples of the row attended to each other"  # the norms work in float32
