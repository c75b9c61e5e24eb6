# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Resume from a checkpoint that is mapped into memory, and save to the same path, as a loop that overwrites it does.

What to look for: the process is killed by SIGBUS in torch.save, without a traceback, and the checkpoint on the disk is
gone: its file is shorter than the one tensor in it.
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
torch.save(state, PATH)
again = torch.load(PATH)
print(f"step={again['step']}")
print(f"wrong_elements={int((again['exp_avg'] != STATE).sum())}")
