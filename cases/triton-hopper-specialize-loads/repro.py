# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A matmul of one tile, whose loop loads by pointers, for Hopper: without warp_specialize=True, and with it.

What to look for: the first one is right (rel_err_plain). The second one does not compile: an assertion in
processProducerCommitOp, then "RuntimeError: PassManager::run failed". Without a GPU both are only compiled, for sm_90.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

M = N = 128
K, BLOCK = 512, 64
WARPS = 4  # one warp group; with 8 warps the compiler leaves this loop as it is


@triton.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, SPECIALIZE: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for i in tl.range(0, K, BLOCK, warp_specialize=SPECIALIZE):
        x = tl.load(a + m[:, None] * K + (i + k)[None, :])
        y = tl.load(b + (i + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


def compile_only(specialize: bool) -> triton.compiler.CompiledKernel:
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}
    sizes = {"M": M, "N": N, "BLOCK": BLOCK, "SPECIALIZE": specialize}
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(types))}
    source = triton.compiler.ASTSource(matmul, types | dict.fromkeys(sizes, "constexpr"), sizes, aligned)
    return triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": WARPS})


def run(name: str, specialize: bool) -> triton.compiler.CompiledKernel:
    torch.manual_seed(0)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((M, K), (K, N)))
    c = torch.empty(M, N, device="cuda")
    kernel = matmul[(1,)](a, b, c, K, M, N, BLOCK, specialize, num_warps=WARPS)
    right = a.double() @ b.double()
    print(f"rel_err_{name}={(c - right).norm() / right.norm():.3g}", flush=True)
    return kernel


try:
    import torch
except ModuleNotFoundError:  # compiling takes no more than Triton
    torch = None
on_gpu = torch is not None and torch.cuda.is_available()
if on_gpu:  # memory for the descriptors that a kernel makes
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
for name, specialize in (("plain", False), ("specialized", True)):
    kernel = run(name, specialize) if on_gpu else compile_only(specialize)
    print(f"partitions_{name}={kernel.asm['ttgir'].count('ttg.warp_specialize')}", flush=True)
