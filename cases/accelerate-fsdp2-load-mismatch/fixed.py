# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "accelerate==1.14.0"]
# ///
"""The same three dicts with the release whose rank 0 goes through the model's keys as the other ranks do.

What to look for: whatever the order, and whatever else is in the dict, both ranks get through (ranks_loaded_...=2) and
every parameter is the one that was saved (wrong_share_...=0).
"""

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate.utils.fsdp_utils import fsdp2_load_full_state_dict
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LAYERS, WIDTH = 2, 8  # layers of one size: with two sizes gloo notices, and ends one of the ranks
DICTS = {
    "as_it_is": lambda full: full,
    "reordered": lambda full: dict(reversed(full.items())),
    "sidecars": lambda full: {
        key: value for name, weight in full.items() for key, value in ((name, weight), (f"{name}.absmax", weight[0]))
    },
}


def build() -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def rank_main(rank: int, rendezvous: Path, what: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2, timeout=timedelta(seconds=20)
    )
    torch.manual_seed(0)
    reference = build()
    with torch.device("meta"):
        model = build()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    full = DICTS[what](reference.state_dict()) if rank == 0 else {}
    fsdp2_load_full_state_dict(SimpleNamespace(is_main_process=rank == 0, device=torch.device("cpu")), model, full)
    pairs = [(got.full_tensor(), right) for got, right in zip(model.parameters(), reference.parameters(), strict=True)]
    wrong = sum((got != right).sum().item() for got, right in pairs) / sum(right.numel() for _, right in pairs)
    if rank == 0:
        print(f"wrong_share_{what}={wrong}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    for what in DICTS:
        with tempfile.TemporaryDirectory() as directory:
            arguments = (Path(directory, "rendezvous"), what)
            ranks = [mp.get_context("fork").Process(target=rank_main, args=(rank, *arguments)) for rank in range(2)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
        print(f"ranks_loaded_{what}={sum(process.exitcode == 0 for process in ranks)}", flush=True)


if __name__ == "__main__":
    main()
