# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0"]
# ///
"""Two ranks run a recurrence whose weight is sharded, and gather the weight anew in every time step: 6 and 9 steps.

Look for: neither rank prints that its backward returned. After six gathers rank 0 has left its loop and reduces a
gradient; rank 1 is at its seventh gather. Each waits for the other in a different collective.
After ten seconds each rank prints on stderr where it stands.

NCCL on two GPUs where there are two, otherwise gloo on the CPU (CUDA_VISIBLE_DEVICES="" asks for that).
"""

import os
import sys
import tempfile
import threading
import time
import traceback

import torch
import torch.distributed as dist

LENGTHS = (6, 9)  # time steps on rank 0 and 1; any two that differ will do
BATCH, C = 2, 32  # small, since only the order of the collectives matters
GPUS = torch.cuda.device_count() >= 2


class Gather(torch.autograd.Function):
    """(C / 2, C) on each rank -> (C, C) on both: gather in forward, reduce in backward, as sharded training does."""

    @staticmethod
    def forward(ctx: object, shard: torch.Tensor) -> torch.Tensor:
        shards = [torch.empty_like(shard) for _ in range(2)]
        dist.all_gather(shards, shard)
        return torch.cat(shards)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.chunk(2)[dist.get_rank()]


def weight() -> torch.Tensor:
    """Small enough for nine steps to neither vanish nor saturate tanh."""
    return torch.randn(C, C, generator=torch.Generator().manual_seed(2)) / C**0.5


def batch(rank: int) -> torch.Tensor:
    return torch.randn(BATCH, LENGTHS[rank], C, generator=torch.Generator().manual_seed(rank))


def loss_of(full: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The recurrence with a weight that is whole."""
    state = torch.zeros_like(inputs[:, 0])
    for t in range(inputs.shape[1]):
        state = torch.tanh(state @ full + inputs[:, t])
    return state.pow(2).mean()


def sharded_loss(shard: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """The same with a sharded weight, made whole for each use."""
    state = torch.zeros_like(inputs[:, 0])
    for t in range(inputs.shape[1]):
        full = Gather.apply(shard)  # as many collectives as this rank's data has time steps
        state = torch.tanh(state @ full + inputs[:, t])
    return state.pow(2).mean()


def reference(rank: int) -> torch.Tensor:
    """The rank's part of the gradient summed over both ranks, in float64 and in one process."""
    full = weight().double().requires_grad_()
    for other in range(2):
        loss_of(full, batch(other).double()).backward()
    return full.grad.chunk(2)[rank]


def print_stacks_later(rank: int) -> None:
    """After ten seconds, on stderr: where each of this rank's threads stands."""

    def watch() -> None:
        time.sleep(10)
        frames = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
        stacks = "\n".join("".join(traceback.format_stack(frame, 8)) for frame in frames)
        print(f"rank {rank} stands here:\n{stacks}", file=sys.stderr, flush=True)

    threading.Thread(target=watch, daemon=True).start()


def main(rank: int, rendezvous: str) -> None:
    device = torch.device("cuda", rank) if GPUS else torch.device("cpu")
    if GPUS:
        torch.cuda.set_device(device)
    backend = "nccl" if GPUS else "gloo"
    dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    shard = weight().chunk(2)[rank].to(device).requires_grad_()
    print_stacks_later(rank)
    loss = sharded_loss(shard, batch(rank).to(device))
    # Line and end in one write: both ranks share one stdout.
    print(f"rank {rank}: forward returned after {LENGTHS[rank]} time steps over {backend}\n", end="", flush=True)
    loss.backward()
    gradient = shard.grad.cpu().double()
    print(f"rank {rank}: backward returned over {backend}\n", end="", flush=True)
    error = (gradient - reference(rank)).norm() / reference(rank).norm()
    print(f"rank{rank}_grad_rel_err={error:.3e}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both ranks are here, and a container may have no other
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=2, daemon=True)
    print("both ranks finished")
