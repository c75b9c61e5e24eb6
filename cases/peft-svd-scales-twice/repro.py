# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "transformers==4.57.6", "peft==0.20.0"]
# ///
"""Two LoRA adapters are mixed, 0.7 and 0.3, by concatenation and by a singular value decomposition, the default.

What to look for: cat gives the weighted sum of the two. svd, with rank enough to give it as well, gives one that is nearly
four times as large (norm_over_exact_svd=3.97): the adapters' scalings are in it twice. No error, no warning.
"""

import torch
from peft import LoraConfig, get_peft_model

WIDTH, RANK = 16, 4  # any will do
ALPHAS = {"style": 16, "subject": 8}  # scalings of 4 and 2: alpha over rank
WEIGHTS = [0.7, 0.3]

torch.manual_seed(0)
configs = {
    name: LoraConfig(target_modules=["0"], r=RANK, lora_alpha=alpha, init_lora_weights=False)  # False: as if trained
    for name, alpha in ALPHAS.items()
}
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)), configs["style"], adapter_name="style")
model.add_adapter("subject", configs["subject"])
layer = model.base_model.model[0]
right = sum(w * layer.get_delta_weight(name).double() for w, name in zip(WEIGHTS, ALPHAS, strict=True))
for kind in ("cat", "svd"):  # svd is the default
    model.add_weighted_adapter(list(ALPHAS), WEIGHTS, kind, combination_type=kind, svd_rank=len(ALPHAS) * RANK)
    got = layer.get_delta_weight(kind).double()
    print(f"rel_err_{kind}={(got - right).norm() / right.norm():.3g}")
    print(f"norm_over_exact_{kind}={got.norm() / right.norm():.3f}")
