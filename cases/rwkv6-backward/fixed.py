# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.2.2", "triton==2.2.0", "numpy==1.26.4", "setuptools==69.5.1"]
# ///
"""FLA's fused recurrent RWKV6 with an initial state: its forward runs, its backward does not compile.

repro.py and fixed.py are the same script; what differs is flash-linear-attention's fla/ops/rwkv6/recurrent_fuse.py, from
the commit before the fix and from the fix. It and the two files that it imports must be importable; case.yaml has the
commits. Both print fwd_rel_err; then repro.py ends in Triton's error, and fixed.py prints the errors of the gradients.
Without a GPU TRITON_INTERPRET=1 runs them; without that, and without torch, the kernel is compiled only."""
import os, sys
from types import ModuleType, SimpleNamespace
try:
    import torch
except ModuleNotFoundError:  # Triton's front end needs nothing of it but names, which upstream's files need too
    torch, cuda, amp = (sys.modules.setdefault(name, ModuleType(name)) for name in ("torch", "torch.cuda", "torch.cuda.amp"))
    torch.version, torch.autograd, torch.Tensor = SimpleNamespace(hip=None), SimpleNamespace(Function=object), object
    torch.dtype = object
    torch.cuda, cuda.is_available = cuda, lambda: False
    amp.custom_fwd = amp.custom_bwd = lambda function: function
import triton
import fla.ops.rwkv6.recurrent_fuse as upstream
import fla.ops.utils

T = 8        # a few steps will do: the backward fails before its first
K = V = 64   # RWKV6's head size: the backward's blocks for it are min(K, 16) and min(V, 64), and it fails if they differ

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
if not interpreted and not torch.cuda.is_available():  # the error comes from the front end, before a device matters
    print("no CUDA device: compiling the kernel for dq only", flush=True)
    kernel = upstream.fused_recurrent_rwkv6_bwd_kernel_dq
    constants = {"BK": 16, "BV": 64, "USE_INITIAL_STATE": True, "REVERSE": False} | dict.fromkeys(("DK", "DV", "K", "V"), K)
    sizes = {name: value for name, value in constants.items() if name in kernel.arg_names}
    names = [name for name in kernel.arg_names if name not in sizes]
    args = {name: "i32" if name in "BHT" or name[:2] == "s_" else "fp32" if name == "scale" else "*fp32" for name in names}
    if triton.__version__ < "3":
        from triton.compiler.compiler import CudaTargetDescriptor as Target, ast_to_ttir, instance_descriptor
        where = {kernel.arg_names.index(name): value for name, value in (args | sizes).items()}
        signature = {at: value for at, value in where.items() if isinstance(value, str)}
        constants = {at: value for at, value in where.items() if at not in signature}
        ast_to_ttir(kernel, signature, instance_descriptor(), constants, False, Target(80, 1, True))
    else:
        source = triton.compiler.ASTSource(kernel, args | dict.fromkeys(sizes, "constexpr"), sizes)
        triton.compile(source, triton.backends.compiler.GPUTarget("cuda", 80, 32), {"num_warps": 1})
    print("kernel for dq: compiled to TTIR")
    sys.exit()
device = "cpu" if interpreted else "cuda"
for each in vars(fla.ops.utils).values():
    if isinstance(each, triton.runtime.Autotuner):
        each.configs = each.configs[:1]  # Triton's interpreter can't time the others

# y_t = r_t (S_t + diag(u) k_t v_t^T), where S_0 = s0 and S_{t+1} = diag(exp w_t) S_t + k_t v_t^T
def exact(r, k, v, w, u, s0):
    S, y = s0[0, 0], []
    for r_t, k_t, v_t, w_t in zip(*(x[0, 0] for x in (r, k, v, w))):
        kv = torch.outer(k_t, v_t)
        y.append(r_t @ (S + u[0][:, None] * kv))
        S = w_t.exp()[:, None] * S + kv
    return torch.stack(y)[None, None]

def rel_err(got, right): return ((got.detach().cpu() - right).abs().max() / right.abs().max()).item()

torch.manual_seed(0)
r, k, w = torch.randn(3, 1, 1, T, K)
v, dy = torch.randn(2, 1, 1, T, V)
u, s0 = torch.randn(1, K), torch.randn(1, 1, K, V)
inputs = {"q": r, "k": k, "v": v, "w": -w.exp(), "u": u}
doubles = {name: x.double().requires_grad_() for name, x in inputs.items()}
right = exact(*doubles.values(), s0.double())
right.backward(dy.double())

leaves = {name: x.to(device).requires_grad_() for name, x in inputs.items()}
y, _ = upstream.fused_recurrent_rwkv6(*leaves.values(), scale=1.0, initial_state=s0.to(device))
print(f"fwd_rel_err={rel_err(y, right):.2e}", flush=True)
y.backward(dy.to(device))
errors = {name: rel_err(leaf.grad, doubles[name].grad) for name, leaf in leaves.items()}
print(f"dq_rel_err={errors['q']:.2e}\nworst_rel_err={max(errors.values()):.2e}")
