# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""An all_reduce begun and waited for on a side stream, of a tensor that was made on the default stream and then dropped.

What to look for: wrong_share_..., the share of another tensor's values that are wrong. It was made right after, got the
same memory (same_memory_...=1), and holds what the all_reduce wrote: 2 where 1 was computed.
"""

import tempfile

import torch
import torch.distributed as dist

COUNT = 1 << 26  # floats: an all_reduce of 256 MiB takes a while, and all of it is in flight when the host goes on


def main(rank: int, rendezvous: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1, device="cuda"))  # both ranks are there, and the communicator is made
    side = torch.cuda.Stream()
    zeros = torch.zeros(COUNT, device="cuda")

    reduced = zeros + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work = dist.all_reduce(reduced, async_op=True)
        work.wait()  # the side stream waits for it, and the host does not
    memory = reduced.data_ptr()
    del reduced, work
    other = zeros + 1

    # Line and end in one write: both ranks share one stdout.
    print(f"same_memory_rank{rank}={int(other.data_ptr() == memory)}\n", end="", flush=True)
    torch.cuda.synchronize()
    print(f"wrong_share_rank{rank}={(other != 1).sum().item() / COUNT}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=2)
