# /// script
# requires-python = "==3.11.*"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "vllm==0.33.0"]
# [[tool.uv.dependency-metadata]]
# name = "vllm"
# requires-dist = []
# ///
"""FlashAttention-2 as vLLM 0.33.0 ships it reads one entry past its block table, at lengths such as 2000.

What to look for: in ordinary memory the numbers are right. At the end of the mapped memory the tables for lengths of
1992 and 2033 serve as well (change_1992=0, change_2033=0), and the one for 2000 ends in "an illegal memory access was
encountered", though no sequence has a page that is not in the table.
"""

import ctypes
import struct
import sys
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace

import torch

sys.modules["vllm"] = module_from_spec(find_spec("vllm"))  # without its __init__, which imports the whole server
from vllm.vllm_flash_attn import flash_attn_varlen_func  # noqa: E402

BATCH = 256  # vLLM's default max_num_seqs; 256 rows of int32 fill the allocator's 512-byte blocks: no slack at the end
LENGTH = 2000  # 80 tokens into its last tile of 128: the last offset is 79; rounded up to 80 it is on the next page
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
    """Random pages for each sequence: as many as it has, the table is as wide as the longest row."""
    return torch.randint(POOL, (BATCH, -(-length // PAGE)), dtype=torch.int32, device="cuda")


def decode(table, length):
    return flash_attn_varlen_func(
        q,
        k_cache,
        v_cache,
        max_seqlen_q=1,
        cu_seqlens_q=torch.arange(BATCH + 1, dtype=torch.int32, device="cuda"),
        max_seqlen_k=length,
        seqused_k=torch.full((BATCH,), length, dtype=torch.int32, device="cuda"),
        causal=True,
        block_table=table,
        fa_version=2,
    )


torch.manual_seed(0)
q = torch.randn(BATCH, Q_HEADS, DIM, device="cuda", dtype=torch.bfloat16)
k_cache, v_cache = torch.randn(2, POOL, PAGE, HEADS, DIM, device="cuda", dtype=torch.bfloat16)

for length in (1992, 2033):  # 8 tokens on their last page, and 1: rounded up, they end on the page that they have
    table = new_table(length)
    change = (decode(before_an_unmapped_page(table), length) - decode(table, length)).abs().max()
    print(f"change_{length}={float(change):g}")

table = new_table(LENGTH)
out = decode(table, LENGTH)  # ordinary memory
row = table[-1].long()
k, v = (
    cache[row].flatten(0, 1)[:LENGTH].double().repeat_interleave(Q_HEADS // HEADS, 1) for cache in (k_cache, v_cache)
)
weights = (torch.einsum("hd,lhd->hl", q[-1].double(), k) / DIM**0.5).softmax(-1)
reference = torch.einsum("hl,lhd->hd", weights, v)
print(f"attention_rel_err={float((out[-1] - reference).abs().max() / reference.abs().max()):.3g}", flush=True)

again = decode(before_an_unmapped_page(table), LENGTH)
print("attention_launched=1", flush=True)
print(f"change_2000={float((again - out).abs().max()):g}")
