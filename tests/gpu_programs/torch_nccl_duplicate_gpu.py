# mypy: ignore-errors
"""Two ranks on one device: NCCL refuses. Without arguments it starts both ranks."""

import os
import subprocess
import sys
import tempfile

if len(sys.argv) == 1:
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [
            subprocess.Popen([sys.executable, __file__, str(rank), f"{scratch}/store"], env=environment)
            for rank in range(2)
        ]
        sys.exit(max(abs(rank.wait()) for rank in ranks))

import torch
import torch.distributed as dist

dist.init_process_group("nccl", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
tensor = torch.ones(4, device="cuda:0")
dist.all_reduce(tensor)
print(f"total={tensor.sum().item()}")
