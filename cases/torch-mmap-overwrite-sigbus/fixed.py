# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same, saved beside the old file, which is then replaced in one step.

What to look for: step=2, wrong_elements=0. The old file is unlinked, and lives on until its mapping goes.
"""

import os
import tempfile

import torch

PATH = os.path.join(tempfile.mkdtemp(), "recipe_state.pt")
STATE = torch.arange(2**20, dtype=torch.float32)  # 4 MiB: more than one page is all that it takes

torch.save({"step": 1, "exp_avg": STATE}, PATH)
state = torch.load(PATH, mmap=True)
print(f"loaded step {state['step']}, {os.path.getsize(PATH)} bytes", flush=True)
state["step"] += 1
torch.save(state, f"{PATH}.new")
os.replace(f"{PATH}.new", PATH)
again = torch.load(PATH)
print(f"step={again['step']}")
print(f"wrong_elements={int((again['exp_avg'] != STATE).sum())}")
