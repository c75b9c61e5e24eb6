# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.compile(mode="reduce-overhead") can't accumulate gradients over two micro-batches.

Look for: after the first micro-batch the gradient is right. The second one's backward ends in a RuntimeError: "accessing
tensor output of CUDAGraphs that has been overwritten by a subsequent run". What it says to do is done here, and does not help.
"""

import torch

MICRO_BATCHES, ROWS, WIDTH = 4, 32, 64
COPY = False


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
