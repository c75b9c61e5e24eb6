# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==1.26.4", "transformers==4.38.2"]
# ///
"""The same positions with the release that leaves autocast for the angles.

What to look for: under autocast too, each position has an embedding of its own.
"""

import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

POSITIONS, WIDTH, BASE = 4096, 64, 10_000  # Llama 2's context and base, and the width of a small head

embedding = LlamaRotaryEmbedding(WIDTH, max_position_embeddings=POSITIONS, base=BASE)
positions = torch.arange(POSITIONS)[None]
queries = torch.zeros(1, 1, POSITIONS, WIDTH)  # only their type is looked at
angles = positions[0].double()[:, None] / BASE ** (torch.arange(0, WIDTH, 2).double() / WIDTH)
exact = torch.cat([angles, angles], -1).cos()

for name, autocast in {"plain": False, "autocast": True}.items():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        cos, _ = embedding(queries, positions)
    print(f"max_error_{name}={(cos[0].double() - exact).abs().max():.3g}")
    print(f"distinct_positions_{name}={len(cos[0].float().unique(dim=0))}")
