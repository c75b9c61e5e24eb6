# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same with a mesh of one dimension and NO_SHARD, which is what HYBRID_SHARD falls back to.

What to look for: grad_norm_ratio=1, and the gradient is the mean over both ranks.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

RANKS, WIDTH = 2, 64
MESH = (RANKS,)  # two replicas, neither of them sharded
STRATEGY = ShardingStrategy.NO_SHARD


def wrap(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", MESH)
    cpu = torch.device("cpu")
    return FullyShardedDataParallel(
        model, device_mesh=mesh, sharding_strategy=STRATEGY, use_orig_params=True, device_id=cpu
    )


def gradient(model: nn.Module, rank: int) -> torch.Tensor:
    model(torch.full((4, WIDTH), rank + 1.0)).square().mean().backward()
    grad = next(model.parameters()).grad
    return grad.double().flatten()


def main(rank: int, rendezvous: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    layers = []
    for _ in range(RANKS + 1):
        torch.manual_seed(0)
        layers.append(nn.Linear(WIDTH, WIDTH, bias=False))
    reference = sum(gradient(layer, other) for other, layer in enumerate(layers[:RANKS])) / RANKS
    got = gradient(wrap(layers[RANKS]), rank)
    norms = [torch.zeros((), dtype=torch.double) for _ in range(RANKS)]
    dist.all_gather(norms, got.norm())
    if rank == 0:
        print(f"grad_norm_ratio={norms[1] / norms[0]:.5g}")
        print(f"rel_err={(got - reference).norm() / reference.norm():.3g}", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo that drops its last tensor while the interpreter ends would abort the process


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # both ranks are here, and a container may have no other
    with tempfile.TemporaryDirectory() as directory:
        torch.multiprocessing.spawn(main, (f"{directory}/rendezvous",), nprocs=RANKS)
