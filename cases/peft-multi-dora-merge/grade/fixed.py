"""`solve` takes the two DoRA adapters of a layer into its weight, and hands out what the plain layer then gives.

That is to be what the layer with both adapters gives: one after the other, each adds its delta and scales the rows by
its magnitude over the norm of the base weight plus its own delta.
"""

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 32, 4


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"weight": (WIDTH, WIDTH), "a": (2, RANK, WIDTH), "b": (2, WIDTH, RANK), "x": (8, WIDTH)}
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {**drawn, "magnitude": 1 + torch.rand(2, WIDTH, generator=generator)}


def adapted(weight, a, b, magnitude):
    config = LoraConfig(target_modules=["0"], r=RANK, lora_alpha=RANK, use_dora=True)
    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False)), config, adapter_name="0")
    model.add_adapter("1", config)
    layer = model.base_model.model[0]
    layer.get_base_layer().weight.data.copy_(weight)
    for i, name in enumerate(("0", "1")):
        layer.lora_A[name].weight.data.copy_(a[i])
        layer.lora_B[name].weight.data.copy_(b[i])
        layer.lora_magnitude_vector[name].weight.data.copy_(magnitude[i])
    model.base_model.set_adapter(["0", "1"])
    return model.eval()


def solve(weight, a, b, magnitude, x):
    model = adapted(weight, a, b, magnitude)
    whole = model(torch.eye(WIDTH)).T.detach()  # merging has the first one's work in the norm for the second
    merged = model.unload()
    merged[0].weight.data.copy_(whole)
    return {"y": merged(x)}
