# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""Two ranks train a vision-language model under DistributedDataParallel, and rank 1's batch has no images.

Look for: rank 1 prints that its backward returned, rank 0 never does, and nothing more happens. Rank 0 waits for
rank 1 to reduce the adapter's gradients; rank 1 has none, has left backward, and waits for rank 0's loss. (With NCCL
rank 0 prints it too, as backward only enqueues the reduction; its wait then shows where it reads the loss.)
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
from torch import nn
from torch.nn.parallel import DistributedDataParallel

C = 32  # width; small, since only the order of the collectives matters
BATCH, TEXT, IMAGE = 2, 4, 6  # sequences per rank, tokens of text and of image in each
GPUS = torch.cuda.device_count() >= 2
DEVICE = "cuda" if GPUS else "cpu"


class VisionLanguage(nn.Module):
    """Image features (from a frozen encoder) -> adapter -> language model. Returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Linear(C, C)  # RWKV's place; what is in it, a time loop or not, changes nothing here
        self.llm = nn.Sequential(nn.Linear(C, C), nn.GELU(), nn.Linear(C, C))

    def forward(self, text: torch.Tensor, image: torch.Tensor | None) -> torch.Tensor:
        tokens = text
        if image is not None:
            tokens = torch.cat([self.adapter(image), text], 1)
        return self.llm(tokens).pow(2).mean()


def build(**options: bool) -> VisionLanguage:
    torch.manual_seed(0)
    return VisionLanguage(**options)


def batch(rank: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(rank)
    text = torch.randn(BATCH, TEXT, C, generator=generator)
    image = torch.randn(BATCH, IMAGE, C, generator=generator)
    return text, image if rank == 0 else None


def gradients(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).cpu().double()


def reference() -> torch.Tensor:
    """What both ranks must end up with: the mean over the ranks, in float64 and in one process."""
    model = build().double()
    for rank in range(2):
        text, image = batch(rank)
        (model(text.double(), None if image is None else image.double()) / 2).backward()
    return gradients(model)


def step(name: str, model: DistributedDataParallel, logging: dist.ProcessGroup) -> None:
    """One training step that ends as trainers' steps do, with every rank's loss gathered for the log."""
    rank = dist.get_rank()
    text, image = batch(rank)
    loss = model(text.to(DEVICE), None if image is None else image.to(DEVICE))
    # Line and end in one write: both ranks share one stdout.
    print(f"rank {rank}: forward returned\n", end="", flush=True)
    loss.backward()
    print(f"rank {rank}: backward returned over {dist.get_backend()}\n", end="", flush=True)
    losses = [torch.zeros(()) for _ in range(2)]
    dist.all_gather(losses, loss.detach().cpu(), group=logging)
    error = (gradients(model) - reference()).norm() / reference().norm()
    print(f"{name}_rank{rank}_grad_rel_err={error:.3e}\n", end="", flush=True)


def print_stacks_later(rank: int) -> None:
    """After ten seconds, on stderr: where each of this rank's threads stands."""

    def watch() -> None:
        time.sleep(10)
        frames = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
        stacks = "\n".join("".join(traceback.format_stack(frame, 8)) for frame in frames)
        print(f"rank {rank} stands here:\n{stacks}", file=sys.stderr, flush=True)

    threading.Thread(target=watch, daemon=True).start()


def main(rank: int, rendezvous: str) -> None:
    if GPUS:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if GPUS else "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    # Logs travel over the host in a group of their own, so no two different collectives ever meet in one group.
    logging = dist.new_group(backend="gloo")
    plain = DistributedDataParallel(build().to(DEVICE))
    print_stacks_later(rank)
    step("plain", plain, logging)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both ranks are here, and a container may have no other
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=2, daemon=True)
    print("both ranks finished")
