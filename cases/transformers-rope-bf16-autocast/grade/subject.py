"""`solve` hands out the rotary embedding of some positions, as a model under autocast to bfloat16 asks for it.

Each is the cosine and the sine of position / base ** (2 i / width), to the precision of float32.
"""

import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

WIDTH, MOST = 64, 8192


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randperm(MOST, generator=generator)[:200].sort().values
    return {"positions": positions[None], "base": 10_000 + int(torch.randint(90_000, (), generator=generator))}


def solve(positions, base):
    embedding = LlamaRotaryEmbedding(WIDTH, max_position_embeddings=MOST, base=base)
    queries = torch.zeros(1, 1, positions.shape[1], WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cos, sin = embedding(queries, positions)
    return {"cos": cos[0], "sin": sin[0]}
