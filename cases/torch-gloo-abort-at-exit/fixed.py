# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same with destroy_process_group, which waits for gloo's threads while they can still have the GIL.

What to look for: it prints total=1, and ends with exit status 0.
"""

import torch
import torch.distributed as dist

NUMBERS = 50  # each in a tensor of its own, which gloo's thread is the last to have

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
total = torch.ones(())
dist.all_reduce(total)
print(f"total={total.item():g}", flush=True)
dist.all_reduce_coalesced([torch.ones(()) for _ in range(NUMBERS)], async_op=True)
dist.destroy_process_group()
