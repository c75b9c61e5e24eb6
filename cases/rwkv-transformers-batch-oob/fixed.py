# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#     "torch==2.11.0", "triton==3.6.0", "transformers==4.37.2", "tokenizers==0.15.2", "huggingface-hub==0.20.3",
#     "numpy==1.26.4", "ninja==1.13.0", "setuptools==80.9.0",
# ]
# ///
"""The RWKV-4 of Hugging Face transformers: gradients of its CUDA kernel for a batch of four.

Look for: every relative error is about 1e-7. The kernel is the package's, and so is all else, but the buffers for the
gradients of time_decay and time_first have a row for each sequence, and the rows are summed.

Needs nvcc, a C++ compiler and ninja: the package compiles its kernel when it is first used (a minute at worst).
"""

import os
import sys
import tempfile

import torch
from transformers.models.rwkv import modeling_rwkv

# B: with one sequence nothing is out of bounds. C * 4 bytes = 256, half of a block of 512 of PyTorch's allocator, so
# the rows leave that block from the third sequence on. T: more than one token, which would take the path without the
# kernel; and it is the length that the kernel gets compiled for.
B, T, C = 4, 16, 64
NAMES = ("time_decay", "time_first", "key", "value")


def arguments(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((C,), (C,), (B, T, C), (B, T, C))
    return [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for shape in shapes]


def output_gradient() -> torch.Tensor:
    return torch.randn(B, T, C, generator=torch.Generator().manual_seed(1))


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.detach().cpu().double() - exact).norm() / exact.norm()).item()


def load_kernel() -> None:
    """The package's own loader, called here because a model that calls it carries on without the kernel if it fails."""
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # where pip puts ninja
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    with tempfile.TemporaryDirectory() as empty:  # no stale lock of a build that was killed, which would be waited for
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", empty)
        modeling_rwkv.load_wkv_cuda_kernel(T)


def give_a_row_to_each_sequence() -> None:
    """Wraps the kernel's backward: buffers with a row for each sequence, and the sum that the package leaves out."""
    kernel = modeling_rwkv.rwkv_cuda_kernel
    backward = kernel.backward

    def backward_in_rows(w, u, k, v, y, gy, gw, gu, gk, gv):
        rows_of_gw, rows_of_gu = gw.new_empty(k.shape[0], *gw.shape), gu.new_empty(k.shape[0], *gu.shape)
        backward(w, u, k, v, y, gy, rows_of_gw, rows_of_gu, gk, gv)
        torch.sum(rows_of_gw, 0, out=gw)
        torch.sum(rows_of_gu, 0, out=gu)

    kernel.backward = backward_in_rows


def main() -> None:
    exact = arguments("cpu", torch.float64)
    y_exact, _ = modeling_rwkv.rwkv_linear_attention_cpu(*exact)  # the package's own path for the CPU
    y_exact.backward(output_gradient().double())

    load_kernel()
    give_a_row_to_each_sequence()
    leaves = arguments("cuda", torch.float32)
    y, _ = modeling_rwkv.rwkv_linear_attention(*leaves)
    print(f"cuda_kernel_used={int(y.grad_fn.name().startswith('RwkvLinearAttention'))}", flush=True)
    y.backward(output_gradient().cuda())
    torch.cuda.synchronize()

    print(f"output_rel_err={relative_error(y, y_exact.detach()):.3e}")
    for name, leaf, leaf_exact in zip(NAMES, leaves, exact, strict=True):
        print(f"{name}_grad_rel_err={relative_error(leaf.grad, leaf_exact.grad):.3e}", flush=True)


if __name__ == "__main__":
    main()
