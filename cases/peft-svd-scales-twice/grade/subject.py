"""`solve` mixes two adapters by their weights, with rank enough for both, and hands out the delta of the mix.

It is to be the weighted sum of their deltas.
"""

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 32, 4


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (2, RANK, WIDTH), "b": (2, WIDTH, RANK)}
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {**drawn, "weights": [round(0.2 + float(torch.rand((), generator=generator)), 3) for _ in range(2)]}


def adapted(a, b):
    """A model of one layer with two adapters, whose matrices are these and whose scalings are 4 and 2."""
    configs = [LoraConfig(target_modules=["0"], r=RANK, lora_alpha=alpha) for alpha in (16, 8)]
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)), configs[0], adapter_name="0")
    model.add_adapter("1", configs[1])
    layer = model.base_model.model[0]
    for name in ("0", "1"):
        layer.lora_A[name].weight.data.copy_(a[int(name)])
        layer.lora_B[name].weight.data.copy_(b[int(name)])
    return model, layer


def solve(a, b, weights):
    model, layer = adapted(a, b)
    model.add_weighted_adapter(["0", "1"], weights, "mix", combination_type="svd", svd_rank=2 * RANK)
    return {"delta": layer.get_delta_weight("mix")}
