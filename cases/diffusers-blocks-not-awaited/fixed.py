# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5", "accelerate==1.13.0", "diffusers==0.42.1"]
# ///
"""The same model with a buffer of its own beside the list.

What to look for: wrong_share=0, and prefetched_groups=19: each group but the last one fetches the next.
"""

import torch
from diffusers.hooks import HookRegistry, apply_group_offloading
from torch import nn

LAYERS, WIDTH, ROWS = 20, 1024, 2048  # the copy of a layer's weights takes longer than the layer


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        self.register_buffer("outside", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.relu(block(x)) * 1.5
        return x


with torch.no_grad():
    x = torch.randn(ROWS, WIDTH, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    right = Net().cuda()(x)
    model = Net()
    apply_group_offloading(
        model,
        onload_device=torch.device("cuda"),
        offload_device=torch.device("cpu"),
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=True,
        record_stream=True,
    )
    shares = [(model(x) != right).float().mean().item() for _ in range(4)]
hooks = [HookRegistry.check_if_exists_or_initialize(block).get_hook("group_offloading") for block in model.blocks]
print(f"wrong_share={max(shares):g}")
print(f"prefetched_groups={sum(hook.next_group is not None for hook in hooks)}")
