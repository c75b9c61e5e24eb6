# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""A process reduces numbers over gloo without waiting for them, and ends.

What to look for: it prints total=1, and aborts when all is done: "terminate called without an active exception".
"""

import torch
import torch.distributed as dist

NUMBERS = 50  # each in a tensor of its own, which gloo's thread is the last to have

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
total = torch.ones(())
dist.all_reduce(total)
print(f"total={total.item():g}", flush=True)
dist.all_reduce_coalesced([torch.ones(()) for _ in range(NUMBERS)], async_op=True)
