# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Paged decode attention reads past the last row of its block table; the sampler gets the blame.

What to look for: with the table in ordinary memory the kernel reads 3 entries past its end and nothing shows: no error,
right numbers. With the same table at the end of the mapped memory: "an illegal memory access was encountered", raised
where the sampler copies its tokens to the host, long after the attention was launched. CUDA_LAUNCH_BLOCKING=1 moves it
to the launch; PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck names the kernel and the read.
"""

import ctypes
import struct
from types import SimpleNamespace

import torch

BATCH = 256  # vLLM's default max_num_seqs; 256 rows of int32 fill the allocator's 512-byte blocks: no slack at the end
LENGTH = 1990  # 70 tokens into its last tile of 128: that tile has 8 pages, the sequence reaches 5 of them
PAGE, HEADS, DIM = 16, 2, 128  # vLLM's page of 16 tokens; the 2 key/value heads and head size of Qwen2.5-1.5B
POOL = 2048  # pages in the cache; rows may share them, only the look-up matters here
CUDA = r"""
extern "C" __global__ void paged_decode(const float* q, const float* kc, const float* vc, const int* table, float* out,
                                        int* reach, int length, int width) {
    __shared__ float p[2048];
    __shared__ int page[2048];
    const int b = blockIdx.x, h = blockIdx.y, t = threadIdx.x, at = (b * gridDim.y + h) * 128 + t;
    for (int first = 0; first < length; first += 128) {      // a tile of 128 tokens, one thread for each
        const int valid = min(128, length - first);
        int row = t / 8 * 8;                                 // eight tokens share one look-up
        const int entry = b * width + (first + row) / 16;
        atomicMax(reach, entry + 1);
        int found;                                           // loaded by every thread; asm, so that it stays that way
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(found) : "l"(table + entry));
        page[first + t] = found;
        if (t < valid) {                                     // while keys and values are only loaded for real tokens
            const float* k = kc + ((found * 16 + (first + t) % 16) * (int)gridDim.y + h) * 128;
            float s = 0;
            for (int d = 0; d < 128; ++d) s += q[at - t + d] * k[d];
            p[first + t] = s * 0.08838834764831845f;         // 1 / sqrt(128)
        }
    }
    __syncthreads();
    float top = -1e30f, sum = 0, acc = 0;
    for (int i = 0; i < length; ++i) top = fmaxf(top, p[i]);
    for (int i = 0; i < length; ++i) {
        const float w = expf(p[i] - top);
        sum += w;
        acc += w * vc[((page[i] * 16 + i % 16) * (int)gridDim.y + h) * 128 + t];
    }
    out[at] = acc / sum;
}
"""


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


def decode(table):
    out = torch.empty(BATCH, HEADS, DIM, device="cuda")
    args = [q, k_cache, v_cache, table, out, reach, LENGTH, table.shape[1]]
    paged_decode(grid=(BATCH, HEADS, 1), block=(128, 1, 1), args=args)
    return out


def sample(hidden):
    """As in vLLM 0.7.2: parameters in pinned memory, copied while the forward pass runs, then tokens to the host."""
    temperature = torch.tensor([1.0] * BATCH, pin_memory=True).to("cuda", non_blocking=True)
    return torch.multinomial((hidden.flatten(1) @ lm_head / temperature[:, None]).softmax(-1), 1).flatten().tolist()


torch.manual_seed(0)
paged_decode = torch.cuda._compile_kernel(CUDA, "paged_decode")
q = torch.randn(BATCH, HEADS, DIM, device="cuda")
k_cache, v_cache = torch.randn(2, POOL, PAGE, HEADS, DIM, device="cuda")
lm_head = torch.randn(HEADS * DIM, 1024, device="cuda")  # any vocabulary will do
reach = torch.zeros(1, dtype=torch.int32, device="cuda")
width = -(-LENGTH // PAGE)  # eager mode: as wide as the longest row, here all rows, as early in a rollout
table = torch.randint(POOL, (BATCH, width), dtype=torch.int32, device="cuda")

out = decode(table)  # ordinary memory
row = table[-1].long()
k, v = (cache[row].flatten(0, 1)[:LENGTH].double() for cache in (k_cache, v_cache))
weights = (torch.einsum("hd,lhd->hl", q[-1].double(), k) / DIM**0.5).softmax(-1)
reference = torch.einsum("hl,lhd->hd", weights, v)
print(f"attention_rel_err={float((out[-1] - reference).abs().max() / reference.abs().max()):.3g}")
print(f"entries_past_the_end={int(reach) - table.numel()}")
print(f"tokens_in_ordinary_memory={len(sample(out))}", flush=True)

out = decode(before_an_unmapped_page(table))
print("attention_launched=1", flush=True)
print(f"tokens_before_an_unmapped_page={len(sample(out))}")
