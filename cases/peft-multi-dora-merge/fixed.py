# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "transformers==5.23.0", "peft==0.21.0"]
# ///
"""The same adapters with the release that takes every norm of the weight as it was before merging.

What to look for: all six relative errors, run and merged, are about 1e-7.
"""

import copy

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 16, 4  # any will do
ADAPTERS = {"two_lora": (["a", "b"], False), "one_dora": (["a"], True), "two_dora": (["a", "b"], True)}
NOISE = 0.1  # stands for training: at the start all adapters are zero, and merging is right


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def trained(names: list[str], *, dora: bool) -> torch.nn.Module:
    """A model with these adapters on its one layer, all active."""
    torch.manual_seed(0)
    config = LoraConfig(target_modules=["layer"], r=RANK, use_dora=dora)
    model = get_peft_model(Model(), config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "lora_" in parameter_name:
                parameter.add_(torch.randn_like(parameter) * NOISE)
    model.base_model.set_adapter(names)
    return model.eval()


def exact(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The layer by peft's formulas, in float64: one adapter after the other on what the ones before have made.

    LoRA adds its delta. DoRA adds it too, and scales each row by the magnitude over the norm of (weight + delta).
    """
    layer = model.base_model.model.layer
    weight = layer.get_base_layer().weight.double()
    total = weight.clone()
    for name in layer.active_adapters:
        delta = layer.scaling[name] * (layer.lora_B[name].weight.double() @ layer.lora_A[name].weight.double())
        total += delta
        if name in layer.lora_magnitude_vector:
            magnitude = layer.lora_magnitude_vector[name].weight.double()
            total *= (magnitude / torch.linalg.norm(weight + delta, dim=1))[:, None]
    return x.double() @ total.T


def relative_error(got: torch.Tensor, right: torch.Tensor) -> float:
    return ((got.double() - right).norm() / right.norm()).item()


def main() -> None:
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for what, (names, dora) in ADAPTERS.items():
            model = trained(names, dora=dora)
            right = exact(model, x)
            print(f"run_rel_err_{what}={relative_error(model(x), right):.3g}")
            merged = copy.deepcopy(model).merge_and_unload()
            print(f"merged_rel_err_{what}={relative_error(merged(x), right):.3g}", flush=True)


if __name__ == "__main__":
    main()
