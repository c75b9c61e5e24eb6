# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "einops==0.8.2", "packaging==26.3", "fla-core==0.5.0"]
# ///
"""RWKV's token shift on a packed batch of documents of 64 tokens: 65535 tokens in all, then 65536.

What to look for: 65535 tokens come out right, to the last bit. One token more, and the launch is refused: "Triton Error
[CUDA]: invalid argument".
"""

import torch
from fla.modules.token_shift import token_shift
from triton.runtime.autotuner import Autotuner

Autotuner.prune_configs = lambda self, _: self.configs[:1]  # any will do; trying them all takes most of the time

DOCUMENT = 64  # tokens; with no more of them than the GPU has multiprocessors, each token is a chunk, and a block, of its own
WIDTH = 8  # any will do

torch.manual_seed(0)
for tokens in (65535, 65536):
    x = torch.randn(1, tokens, WIDTH, device="cuda")
    starts = torch.tensor([*range(0, tokens, DOCUMENT), tokens], device="cuda", dtype=torch.int32)
    before = x.roll(1, dims=1)
    before[:, starts[:-1].long()] = 0  # nothing comes before the first token of a document
    shifted = token_shift(x, starts)
    print(f"wrong_values_{tokens}={(shifted != before - x).sum().item()}", flush=True)
