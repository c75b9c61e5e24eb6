# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#     "torch==2.11.0", "triton==3.6.0", "transformers==4.37.2", "tokenizers==0.15.2", "huggingface-hub==0.20.3",
#     "numpy==1.26.4", "ninja==1.13.0", "setuptools==80.9.0",
# ]
# ///
"""The RWKV-4 of Hugging Face transformers: gradients of its CUDA kernel for a batch of four.

Look for: exit status 0 and not a word, but the gradients of time_decay and time_first are wrong by most of their size,
while those of key and value are right. The kernel wrote one row per sequence into buffers with room for one row.
Those writes show under PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python repro.py

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


def main() -> None:
    exact = arguments("cpu", torch.float64)
    y_exact, _ = modeling_rwkv.rwkv_linear_attention_cpu(*exact)  # the package's own path for the CPU
    y_exact.backward(output_gradient().double())

    load_kernel()
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
