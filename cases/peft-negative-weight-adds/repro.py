# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "transformers==4.57.6", "peft==0.18.1"]
# ///
"""An adapter is weighted with -1, to take out of a model what it put in.

What to look for: with 1 the result is the adapter (kept_over_delta=1.000), and with -1 it is the same
(negated_over_delta=1.000, not -1.000). No error, no warning.
"""

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 16, 4  # any will do
WEIGHTS = {"kept": 1.0, "negated": -1.0}

torch.manual_seed(0)
config = LoraConfig(target_modules=["0"], r=RANK, init_lora_weights=False)  # False: random, as if trained
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)), config, adapter_name="task")
layer = model.base_model.model[0]
delta = layer.get_delta_weight("task").double()
for name, weight in WEIGHTS.items():
    model.add_weighted_adapter(["task"], [weight], name, combination_type="linear")
    got = layer.get_delta_weight(name).double()
    print(f"rel_err_{name}={(got - weight * delta).norm() / delta.norm():.3g}")
    print(f"{name}_over_delta={(got * delta).sum() / delta.square().sum():.3f}")
