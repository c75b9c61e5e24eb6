"""`solve` unpads rows of packed samples, whose mask has each token's sample by its number, and 0 for padding.

It hands out, for each row, the places of all tokens, and where its samples begin and end among these.
"""

import torch
import transformers.modeling_flash_attention_utils as fa


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (), generator=generator))
    masks = []
    for _ in range(5):
        lengths = [draw(1, 40) for _ in range(draw(2, 9))]
        ids = [number + 1 for number, length in enumerate(lengths) for _ in range(length)]
        masks.append(torch.tensor(ids + [0] * draw(1, 30)))
    return {"masks": masks}


def solve(masks):
    rows, ends = [], []
    for mask in masks:
        row, end, _ = fa._get_unpad_data(mask[None])
        rows.append(row)
        ends.append(end)
    return {"rows": rows, "ends": ends}
