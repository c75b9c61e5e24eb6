# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.2.2", "triton==2.2.0", "numpy==1.26.4", "setuptools==69.5.1"]
# ///
"""An op with a recurrent state: its forward runs, its backward does not compile. Look at `keep` in dq_kernel.

repro.py builds that mask as [BK, BV] for a tile that is [BV, BK], and ends in triton's CompilationError; fixed.py
builds it as [BV, BK] and prints dq_rel_err. On a GPU both print fwd_rel_err first; without one they compile only."""
import sys, types
try:
    import torch
except ModuleNotFoundError:  # importing Triton 2.2 asks torch for its HIP version; its compiler needs no more of it
    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.version, torch.cuda = types.SimpleNamespace(hip=None), types.SimpleNamespace(is_available=lambda: False)
import triton, triton.language as tl

T = 8            # a few steps will do: the backward fails before its first
K = V = 64       # RWKV6's head size
BK, BV = 16, 64  # the backward's blocks for it were min(K, 16) and min(V, 64); the failure needs BK != BV

@triton.jit
def y_kernel(q, k, v, w, s0, y, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    rk, rv = tl.program_id(0) * BK + tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    keep = (rv < V)[:, None] & (rk < K)[None, :]                           # [BV, BK]
    S = tl.load(s0 + rk[None, :] * V + rv[:, None], mask=keep, other=0.0)  # [BV, BK] of the [K, V] state
    for t in range(0, T):
        q_t, k_t, v_t, w_t = tl.load(q + t*K + rk), tl.load(k + t*K + rk), tl.load(v + t*V + rv), tl.load(w + t*K + rk)
        tl.store(y + (tl.program_id(0) * T + t) * V + rv, tl.sum(S * q_t[None, :], 1))
        S = S * tl.exp(w_t)[None, :] + v_t[:, None] * k_t[None, :]

@triton.jit
def dq_kernel(k, v, w, s0, dy, dq, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    rk, rv = tl.program_id(0) * BK + tl.arange(0, BK), tl.program_id(1) * BV + tl.arange(0, BV)
    keep = (rk < K)[:, None] & (rv < V)[None, :]                           # [BK, BV]
    S = tl.load(s0 + rk[None, :] * V + rv[:, None], mask=keep, other=0.0)  # [BV, BK] of the [K, V] state
    for t in range(0, T):
        g_t, k_t, v_t, w_t = tl.load(dy + t*V + rv), tl.load(k + t*K + rk), tl.load(v + t*V + rv), tl.load(w + t*K + rk)
        tl.store(dq + (tl.program_id(1) * T + t) * K + rk, tl.sum(S * g_t[:, None], 0))
        S = S * tl.exp(w_t)[None, :] + v_t[:, None] * k_t[None, :]

if not torch.cuda.is_available():  # the error comes from Triton's front end, before a device matters
    print("no CUDA device: compiling dq_kernel only", flush=True)
    sizes = dict(K=K, V=V, BK=BK, BV=BV)
    args = {name: "i32" if name == "T" else "*fp32" for name in dq_kernel.arg_names if name not in sizes}
    if triton.__version__ < "3":
        from triton.compiler.compiler import CudaTargetDescriptor as Target, ast_to_ttir, instance_descriptor
        ast_to_ttir(dq_kernel, dict(enumerate(args.values())), instance_descriptor(), sizes, False, Target(80, 1, True))
    else:
        source = triton.compiler.ASTSource(dq_kernel, args | dict.fromkeys(sizes, "constexpr"), sizes)
        triton.compile(source, triton.backends.compiler.GPUTarget("cuda", 80, 32), {"num_warps": 1})
    print("dq_kernel: compiled to TTIR")
    sys.exit()

# y_t = q_t S_t, where S_0 = s0 and S_{t+1} = diag(exp w_t) S_t + k_t v_t^T. Only q gets its gradient here.
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, w, s0):
        ctx.save_for_backward(k, v, w, s0)
        y = q.new_empty(K // 32, T, V)
        y_kernel[(K // 32, V // 32)](q, k, v, w, s0, y, T, K, V, 32, 32, num_warps=1)
        return y.sum(0)
    @staticmethod
    def backward(ctx, dy):
        dq = dy.new_empty(V // BV, T, K)
        dq_kernel[(K // BK, V // BV)](*ctx.saved_tensors, dy, dq, T, K, V, BK, BV, num_warps=1)
        return dq.sum(0), None, None, None, None

def rel_err(got, exact): return ((got.detach().cpu() - exact).abs().max() / exact.abs().max()).item()

torch.manual_seed(0)
q, k, w, v, dy, s0 = *torch.randn(3, T, K), *torch.randn(2, T, V), torch.randn(K, V)
w, S = -w.exp(), [s0.double()]
for t in range(T - 1):
    S.append(w[t].double().exp()[:, None] * S[t] + torch.outer(k[t].double(), v[t].double()))
leaf = q.cuda().requires_grad_()
y = Op.apply(leaf, k.cuda(), v.cuda(), w.cuda(), s0.cuda())
print(f"fwd_rel_err={rel_err(y, torch.einsum('tk,tkv->tv', q.double(), torch.stack(S))):.2e}", flush=True)
y.backward(dy.cuda())
print(f"dq_rel_err={rel_err(leaf.grad, torch.einsum('tkv,tv->tk', torch.stack(S), dy.double())):.2e}")
