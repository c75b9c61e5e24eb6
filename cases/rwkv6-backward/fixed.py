# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.2.2", "triton==2.2.0", "numpy==1.26.4", "setuptools==69.5.1"]
# ///
"""The same with upstream's files of the commit that builds the mask as [BV, BK]: with a state it compiles, and is right."""

import sys
from unittest.mock import MagicMock

try:
    import torch
except ModuleNotFoundError:  # the kernel alone needs no torch: a stand-in has the place of what the files ask of it
    torch = sys.modules["torch"] = sys.modules["torch.cuda.amp"] = MagicMock()
    torch.version.hip, torch.cuda.is_available = None, lambda: False
import triton

from fla.ops.rwkv6.recurrent_fuse import fused_recurrent_rwkv6, fused_recurrent_rwkv6_bwd_kernel_dq

T, K, V = 8, 64, 64  # a few steps will do; 64 is RWKV6's head size


def compile_backward(with_state):
    """Hand the kernel to Triton's front end, as upstream's backward launches it for one head: blocks of 16 x 64."""
    kernel = fused_recurrent_rwkv6_bwd_kernel_dq
    sizes = {"B": 1, "H": 1, "T": T, "K": K, "V": V, "DK": K, "DV": V, "BK": min(K, 16), "BV": min(V, 64)}
    sizes |= {"USE_INITIAL_STATE": with_state, "REVERSE": False}
    constants = {param.name: sizes[param.name] for param in kernel.params if param.is_constexpr}
    numbers = {"scale": "fp32"} | {name: "i32" for name in kernel.arg_names if name in sizes or name.startswith("s_")}
    types = {name: numbers.get(name, "*fp32") for name in kernel.arg_names if name not in constants}
    if triton.__version__ < "3":
        from triton.compiler.compiler import CudaTargetDescriptor, ast_to_ttir, instance_descriptor

        types = {kernel.arg_names.index(name): type_ for name, type_ in types.items()}
        target = CudaTargetDescriptor(80, 1, True)
        ast_to_ttir(kernel, types, instance_descriptor(), constants, False, target)
    else:
        source = triton.compiler.ASTSource(kernel, types | dict.fromkeys(constants, "constexpr"), constants)
        triton.compile(source, triton.backends.compiler.GPUTarget("cuda", 80, 32), {"num_warps": 1})


if not torch.cuda.is_available():  # the error comes from Triton's front end, before a device matters
    compile_backward(with_state=False)
    print("compiled_without_state=1", flush=True)
    compile_backward(with_state=True)
    print("compiled_with_state=1")
    sys.exit()


def reference(r, k, v, w, u, state):
    """The recurrence: o_t = r_t (S_t + diag(u) k_t v_t^T), S_{t+1} = diag(exp w_t) S_t + k_t v_t^T."""
    rows = []
    for t in range(T):
        kv = k[t][:, None] * v[t]
        rows.append(r[t] @ (state + u[:, None] * kv))
        state = w[t].exp()[:, None] * state + kv
    return torch.stack(rows)


def rel_err(got, exact):
    return float((got.detach().cpu().double().reshape(exact.shape) - exact).abs().max() / exact.abs().max())


def run(state, suffix):
    """One forward and one backward of upstream's function, against autograd through the recurrence in float64."""
    exact = [x.double().requires_grad_() for x in (r, k, v, w, u)]
    exact_o = reference(*exact, torch.zeros(K, V).double() if state is None else state.double())
    exact_o.backward(do.double())
    given = [x.cuda()[None, None].requires_grad_() for x in (r, k, v, w)] + [u.cuda()[None].requires_grad_()]
    o, _ = fused_recurrent_rwkv6(*given, scale=1.0, initial_state=None if state is None else state.cuda()[None, None])
    print(f"fwd_rel_err{suffix}={rel_err(o, exact_o.detach()):.2e}", flush=True)
    o.backward(do.cuda()[None, None])
    print(f"dq_rel_err{suffix}={rel_err(given[0].grad, exact[0].grad):.2e}")
    print(f"grad_rel_err{suffix}={max(rel_err(x.grad, y.grad) for x, y in zip(given, exact)):.2e}", flush=True)


torch.manual_seed(0)
r, k, w, v, do, u = *torch.randn(3, T, K), *torch.randn(2, T, V), torch.randn(K)
w = -w.exp()
run(None, "_without_state")
run(torch.randn(K, V), "")
