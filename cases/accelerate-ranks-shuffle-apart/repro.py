# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "accelerate==0.29.3"]
# ///
"""Two ranks share out 240 shuffled samples, and each has shuffled for itself.

What to look for: with one seed on both ranks, each sample is seen once. With a seed for each rank, as dropout wants it, 63
samples are seen by both and as many by none (never_seen_seeds_apart). No error, no warning. CPU, gloo.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

RANKS, SAMPLES = 2, 240


def rank_main(rank: int, rendezvous: Path, name: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")  # accelerate reads them; the file is used
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    accelerator = Accelerator(cpu=True)
    set_seed(0, device_specific=name == "seeds_apart")  # apart: for dropout and augmentation, which must differ
    loader = accelerator.prepare(DataLoader(torch.arange(SAMPLES), batch_size=1, shuffle=True))
    seen = torch.bincount(accelerator.gather(torch.cat(list(loader))), minlength=SAMPLES)
    if rank == 0:
        print(f"seen_by_both_{name}={int((seen > 1).sum())}")
        print(f"never_seen_{name}={int((seen == 0).sum())}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    for name in ("seeds_alike", "seeds_apart"):
        with tempfile.TemporaryDirectory() as directory:
            arguments = (Path(directory, "rendezvous"), name)
            ranks = [mp.get_context("fork").Process(target=rank_main, args=(rank, *arguments)) for rank in range(RANKS)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()


if __name__ == "__main__":
    main()
