# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Two ranks exchange a tensor over NCCL, a small one and then a large one: each begins a send, then a receive, and waits.

What to look for: the small one arrives on both ranks. Of the large one nothing arrives: both ranks stand where they
wait for the GPU. The tensors are all that differs.
"""

import tempfile

import torch
import torch.distributed as dist

SMALL, LARGE = 1 << 10, 1 << 26  # floats: 4 KiB fit into NCCL's buffers, 256 MiB do not


def exchange(tensor: torch.Tensor, other: int) -> torch.Tensor:
    got = torch.empty_like(tensor)
    works = [dist.isend(tensor, other), dist.irecv(got, other)]
    for work in works:
        work.wait()
    return got


def main(rank: int, rendezvous: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1, device="cuda"))  # both ranks are there, and the communicator is made
    for name, count in (("small", SMALL), ("large", LARGE)):
        got = exchange(torch.full((count,), rank + 1.0, device="cuda"), 1 - rank)
        torch.cuda.synchronize()
        # Line and end in one write: both ranks share one stdout.
        print(f"{name}_wrong_rank{rank}={(got != 2 - rank).sum().item()}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=2, daemon=True)
    print("both ranks finished")
