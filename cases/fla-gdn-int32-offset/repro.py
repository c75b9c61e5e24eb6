# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "einops==0.8.2", "packaging==26.3", "fla-core==0.5.2"]
# ///
"""The first stage of the gated delta rule on 16 sequences, of 17476 tokens and of 17477, together and one by one.

What to look for: with 17476 tokens each sequence has, in the batch, the bits that it has alone. With one token more the
last one's keys begin 2^31 elements behind the first one's: "CUDA error: an illegal memory access was encountered". Where
the memory before the keys is mapped too, there is no error, and different_17477_15 is over 100000000.
"""

import torch
from fla.ops.gated_delta_rule.chunk_fwd import chunk_gated_delta_rule_fwd_intra
from triton.runtime.autotuner import Autotuner

Autotuner.prune_configs = lambda self, _: self.configs[:1]  # any will do; trying them all takes most of the time

SEQUENCES, HEADS, WIDTH = 16, 64, 128  # with these the edge is between 17476 and 17477 tokens
VALUE = 16  # width of the values: little, so that only the keys are so many

torch.manual_seed(0)
for tokens in (17476, 17477):
    shape = SEQUENCES, tokens, HEADS
    last = ((SEQUENCES - 1) * tokens * HEADS + HEADS - 1) * WIDTH  # where the last head of the last sequence begins
    print(f"over_int32_{tokens}={last - (2**31 - 1)}")
    k = torch.empty(*shape, WIDTH, dtype=torch.bfloat16, device="cuda").normal_(std=WIDTH**-0.5)
    v = torch.empty(*shape, VALUE, dtype=torch.bfloat16, device="cuda").normal_()
    g = torch.nn.functional.logsigmoid(torch.randn(shape, device="cuda"))
    beta = torch.rand(shape, device="cuda").bfloat16()
    together, *_ = chunk_gated_delta_rule_fwd_intra(k=k, v=v, g=g, beta=beta)
    for i in (0, 8, 15):
        alone, *_ = chunk_gated_delta_rule_fwd_intra(*(x[i : i + 1] for x in (k, v, g, beta)))
        print(f"different_{tokens}_{i}={(together[i] != alone[0]).sum().item()}", flush=True)
    del k, v, together
