# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same loss, of the logits as rows: what has two dimensions goes through another kernel.

What to look for: the loss and every row of the gradient are right.
"""

import math

import torch

CLASSES = 2**15
ROWS = 2**16 + 1  # ROWS * CLASSES is 2^31 and one row more

logits = torch.zeros(ROWS, 1, CLASSES, dtype=torch.bfloat16, device="cuda", requires_grad=True)
target = torch.zeros(ROWS, 1, dtype=torch.int64, device="cuda")
loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
print(f"loss_over_exact={loss.item() / (ROWS * math.log(CLASSES)):.4f}", flush=True)
loss.backward()
gradient = logits.grad[:, 0, 0].float()  # of each row's target: all the same
print(f"wrong_rows={((gradient + 1).abs() > 1e-2).sum().item()}")
