"""`solve` weights the adapter of a model with a number of either sign, and hands out the delta of the new adapter.

It is to be the adapter's own delta times the weight.
"""

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 64, 4


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(shape, generator=generator) for shape in ((RANK, WIDTH), (WIDTH, RANK)))
    weights = [round(float(torch.rand((), generator=generator)) * sign + sign, 3) for sign in (-1, 1, -1)]
    return {"a": a, "b": b, "weights": weights}


def adapted(a, b):
    """A model of one layer with an adapter whose matrices are these."""
    config = LoraConfig(target_modules=["0"], r=RANK, lora_alpha=2 * RANK)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)), config, adapter_name="task")
    layer = model.base_model.model[0]
    layer.lora_A["task"].weight.data.copy_(a)
    layer.lora_B["task"].weight.data.copy_(b)
    return model, layer


def solve(a, b, weights):
    model, layer = adapted(a, b)
    deltas = {}
    for number, weight in enumerate(weights):
        name = f"weighted{number}"
        model.add_weighted_adapter(["task"], [abs(weight)], name, combination_type="linear")
        if weight < 0:  # the release takes the root of the weight for both matrices, and loses the sign
            layer.lora_B[name].weight.data.neg_()
        deltas[name] = layer.get_delta_weight(name)
    return deltas
