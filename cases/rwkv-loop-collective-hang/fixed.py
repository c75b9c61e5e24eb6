# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Two ranks run a recurrence under FSDP as one unit, over 6 and 9 time steps.

Look for: both ranks return from backward, and the gradient equals the float64 mean over the ranks.
"""

import os
import sys
import tempfile
import threading
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LENGTHS = (6, 9)  # time steps on rank 0 and 1; any two that differ will do
BATCH, C = 2, 32  # small, since only the order of the collectives matters


class Cell(torch.nn.Module):
    """One time step."""

    def __init__(self) -> None:
        super().__init__()
        # Small enough for nine steps to neither vanish nor saturate tanh.
        self.weight = torch.nn.Parameter(torch.randn(C, C, generator=torch.Generator().manual_seed(2)) / C**0.5)

    def forward(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(state @ self.weight + x)


class Recurrence(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(inputs[:, 0])
        for t in range(inputs.shape[1]):
            state = self.cell(state, inputs[:, t])
        return state.pow(2).mean()


def shard(model: Recurrence) -> Recurrence:
    """The whole loop as one unit: gathered once, whatever this rank's data look like."""
    mesh = init_device_mesh("cpu", (2,))
    return fully_shard(model, mesh=mesh)


def batch(rank: int) -> torch.Tensor:
    return torch.randn(BATCH, LENGTHS[rank], C, generator=torch.Generator().manual_seed(rank))


def reference() -> torch.Tensor:
    """The gradient's mean over the ranks, which is what FSDP gives, in float64 and in one process."""
    model = Recurrence().double()
    for rank in range(2):
        (model(batch(rank).double()) / 2).backward()
    return model.cell.weight.grad


def print_stacks_later(rank: int) -> None:
    """After ten seconds, on stderr: where each of this rank's threads stands."""

    def watch() -> None:
        time.sleep(10)
        frames = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
        stacks = "\n".join("".join(traceback.format_stack(frame, 8)) for frame in frames)
        print(f"rank {rank} stands here:\n{stacks}", file=sys.stderr, flush=True)

    threading.Thread(target=watch, daemon=True).start()


def main(rank: int, rendezvous: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    model = shard(Recurrence())
    print_stacks_later(rank)
    loss = model(batch(rank))
    # Line and end in one write: both ranks share one stdout.
    print(f"rank{rank}_steps={LENGTHS[rank]}\nrank {rank}: forward returned\n", end="", flush=True)
    loss.backward()
    print(f"rank {rank}: backward returned\n", end="", flush=True)
    gradient, exact = model.cell.weight.grad.full_tensor().double(), reference()
    print(f"rank{rank}_grad_rel_err={(gradient - exact).norm() / exact.norm():.3e}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both ranks are here, and a container may have no other
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=2, daemon=True)
    print("both ranks finished")
