# /// script
# requires-python = "==3.11.*"
# dependencies = ["torch==2.5.1", "numpy==1.26.4", "nvidia-ml-py==13.615.71", "vllm==0.7.3"]
# [[tool.uv.dependency-metadata]]
# name = "vllm"
# requires-dist = []
# ///
"""The same decode steps with the library of vLLM 0.7.3, which clamps the row before its page is looked up.

What to look for: at lengths of 1986, 1990 and 1993 the table at the end of the mapped memory serves as well as the one
in ordinary memory: 256 tokens each.
"""

import ctypes
import struct
import sys
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace

import torch

sys.modules["vllm"] = module_from_spec(find_spec("vllm"))  # without its __init__, which imports the whole server
from vllm.vllm_flash_attn import flash_attn_with_kvcache  # noqa: E402

BATCH = 256  # vLLM's default max_num_seqs; 256 rows of int32 fill the allocator's 512-byte blocks: no slack at the end
LENGTH = 1990  # 70 tokens into its last tile of 128: that tile has 8 pages, the sequence reaches 5 of them
PAGE, Q_HEADS, HEADS, DIM = 16, 12, 2, 128  # vLLM's page of 16 tokens; the heads of Qwen2.5-1.5B
POOL = 2048  # pages in the cache; rows may share them, only the look-up matters here


def before_an_unmapped_page(table):
    """A copy of `table` whose last byte is the last mapped one: what lies behind stays reserved and empty.

    In a serving process this is luck: the table must be the last thing in its segment, with no segment behind it.
    """
    driver, nbytes = ctypes.CDLL("libcuda.so.1"), table.nbytes

    def call(name, *args):
        status = getattr(driver, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if status:
            raise RuntimeError(f"{name} returned {status}")

    granule, base, handle = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    kind = struct.pack("iiiiQQ", 1, 0, 1, 0, 0, 0)  # CUmemAllocationProp: pinned, no export, device 0
    access = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 may read and write
    call("cuMemGetAllocationGranularity", ctypes.byref(granule), kind, 0)
    size = -(-nbytes // granule.value) * granule.value
    call("cuMemAddressReserve", ctypes.byref(base), size + granule.value, 0, 0, 0)
    call("cuMemCreate", ctypes.byref(handle), size, kind, 0)
    call("cuMemMap", base, size, 0, handle, 0)
    call("cuMemSetAccess", base, size, access, 1)
    place = {"data": (base.value + size - nbytes, False), "shape": tuple(table.shape), "typestr": "<i4", "version": 3}
    memory = SimpleNamespace(__cuda_array_interface__={**place, "strides": None})
    return torch.as_tensor(memory, device="cuda").copy_(table)


def new_table(length):
    """Random pages for each sequence. In eager mode vLLM's table is as wide as the longest sequence needs."""
    return torch.randint(POOL, (BATCH, -(-length // PAGE)), dtype=torch.int32, device="cuda")


def decode(table, length):
    """One step for each sequence, as vLLM's attention backend calls it."""
    lengths = torch.full((BATCH,), length, dtype=torch.int32, device="cuda")
    return flash_attn_with_kvcache(
        q[:, None], k_cache, v_cache, block_table=table, cache_seqlens=lengths, causal=True, fa_version=2
    )[:, 0]


def sample(hidden):
    """As in vLLM 0.7.2: parameters in pinned memory, copied while the forward pass runs, then tokens to the host."""
    temperature = torch.tensor([1.0] * BATCH, pin_memory=True).to("cuda", non_blocking=True)
    logits = hidden.flatten(1).float() @ lm_head / temperature[:, None]
    return torch.multinomial(logits.softmax(-1), 1).flatten().tolist()


torch.manual_seed(0)
q = torch.randn(BATCH, Q_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
k_cache, v_cache = torch.randn(2, POOL, PAGE, HEADS, DIM, device="cuda", dtype=torch.bfloat16)
lm_head = torch.randn(Q_HEADS * DIM, 1024, device="cuda")  # any vocabulary will do

table = new_table(LENGTH)
out = decode(table, LENGTH)  # ordinary memory
row = table[-1].long()
k, v = (
    cache[row].flatten(0, 1)[:LENGTH].double().repeat_interleave(Q_HEADS // HEADS, 1) for cache in (k_cache, v_cache)
)
weights = (torch.einsum("hd,lhd->hl", q[-1].double(), k) / DIM**0.5).softmax(-1)
reference = torch.einsum("hl,lhd->hd", weights, v)
print(f"attention_rel_err={float((out[-1] - reference).abs().max() / reference.abs().max()):.3g}")
print(f"tokens_in_ordinary_memory={len(sample(out))}", flush=True)

full = new_table(2048)  # a sequence that fills its last tile has all the pages that are looked up
change = (decode(before_an_unmapped_page(full), 2048) - decode(full, 2048)).abs().max()
print(f"change_2048={float(change):g}", flush=True)

for length in (1986, LENGTH, 1993):  # for these the clamp of 0.7.3 ends at the last page that the sequence has
    again = decode(before_an_unmapped_page(new_table(length)), length)
    print(f"launched_{length}=1", flush=True)
    print(f"tokens_{length}_before_an_unmapped_page={len(sample(again))}", flush=True)
