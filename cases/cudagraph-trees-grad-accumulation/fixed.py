# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same accumulation, with a copy made of every gradient that the compiled backward returns.

Look for: after each of four micro-batches the gradient of the weight is that of eager mode.
"""

import torch

MICRO_BATCHES, ROWS, WIDTH = 4, 32, 64
COPY = True  # of every gradient that a replay returns


def main() -> None:
    torch.manual_seed(0)
    model, reference = (torch.nn.Linear(WIDTH, WIDTH, device="cuda") for _ in range(2))
    reference.load_state_dict(model.state_dict())
    if COPY:
        for parameter in model.parameters():
            parameter.register_hook(torch.clone)
    compiled = torch.compile(model, mode="reduce-overhead")
    for number in range(1, MICRO_BATCHES + 1):
        x = torch.randn(ROWS, WIDTH, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        compiled(x).clone().square().mean().backward()
        reference(x).square().mean().backward()
        error = (model.weight.grad - reference.weight.grad).norm() / reference.weight.grad.norm()
        print(f"weight_grad_rel_err_{number}={error.item():.3e}", flush=True)


if __name__ == "__main__":
    main()
