# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same with deterministic algorithms: the CPU adds on one thread.

What to look for: run the script twice. gradient is the same each time.
"""

import hashlib

import torch

ROWS, WIDTH, IDS = 8, 4, 200_000  # few rows and many look-ups: many additions to one number
torch.set_num_threads(2)  # on a machine with one core PyTorch would use one, and add in one order
torch.use_deterministic_algorithms(True)

generator = torch.Generator().manual_seed(0)
weight = torch.randn(ROWS, WIDTH, generator=generator, requires_grad=True)
ids = torch.randint(ROWS, (IDS,), generator=generator)
upstream = torch.randn(IDS, WIDTH, generator=generator)

weight[ids].backward(upstream)

bits = bytes(weight.grad.view(torch.uint8).flatten().tolist())
print(f"gradient=sha256:{hashlib.sha256(bits).hexdigest()}")
exact = torch.zeros(ROWS, WIDTH, dtype=torch.double).index_add_(0, ids, upstream.double())
print(f"rel_err={(weight.grad - exact).norm() / exact.norm():.3g}")
