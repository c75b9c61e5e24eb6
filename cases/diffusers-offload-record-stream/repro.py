# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "accelerate==1.13.0", "diffusers==0.35.2"]
# ///
"""Weights that group offloading copies to the GPU while earlier layers compute, with record_stream=True.

What to look for: wrong_share, the share of the output's values that are not those of the same model kept on the GPU:
layers computed with the weights of a later one. With record_stream=False, in the same model, none is wrong.
"""

import torch
from diffusers.hooks import apply_group_offloading
from torch import nn

LAYERS, WIDTH, ROWS = 8, 2048, 16384  # a layer takes several times as long as the copy of the next one's weights


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x)) * 2
        return x


def wrong_share(record_stream: bool) -> float:
    model = Net()
    apply_group_offloading(
        model,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level",
        use_stream=True,
        record_stream=record_stream,
    )
    model(x)  # the first call finds out in which order the layers run; from the second one on weights are prefetched
    return (model(x) != right).float().mean().item()


with torch.no_grad():
    x = torch.randn(ROWS, WIDTH, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    right = Net().cuda()(x)
    print(f"wrong_share_not_recorded={wrong_share(record_stream=False):g}")
    print(f"wrong_share={wrong_share(record_stream=True):g}")
