# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same accumulation, with a copy made of every gradient that a replay returns.

Look for: after each micro-batch the gradient of the weight is the sum so far, to 1e-5.
"""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MICRO_BATCHES, ROWS, WIDTH = 3, 32, 64  # two are enough to go wrong; a third tells "the last" from "the second"


class Replay(torch.autograd.Function):
    """x @ weight.T + bias. Its backward writes into the same two buffers every time, as a captured one has to."""

    @staticmethod
    def forward(ctx, x, weight, bias, weight_grad, bias_grad):
        ctx.save_for_backward(x)
        ctx.buffers = weight_grad, bias_grad
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        weight_grad, bias_grad = ctx.buffers
        torch.mm(gradient.T, ctx.saved_tensors[0], out=weight_grad)
        torch.sum(gradient, 0, out=bias_grad)
        return None, weight_grad.detach(), bias_grad.detach(), None, None


def graphed(model: torch.nn.Linear, sample: torch.Tensor):
    """The model, with its forward and its backward pass captured for inputs like `sample`."""
    if DEVICE == "cuda":
        return torch.cuda.make_graphed_callables(model, (sample.clone(),))
    buffers = torch.empty_like(model.weight), torch.empty_like(model.bias)
    return lambda x: Replay.apply(x, model.weight, model.bias, *buffers)


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    print(f"on_gpu={int(DEVICE == 'cuda')}")
    model = torch.nn.Linear(WIDTH, WIDTH, device=DEVICE)
    inputs = torch.randn(MICRO_BATCHES, ROWS, WIDTH, device=DEVICE)
    gradients = torch.randn(MICRO_BATCHES, ROWS, WIDTH, device=DEVICE)  # of the output, one for each micro-batch
    each = torch.einsum("bro,bri->boi", gradients.double(), inputs.double())  # the weight's gradient from each

    replay = graphed(model, inputs[0])
    model.zero_grad(set_to_none=True)  # the default of every optimizer's zero_grad
    for parameter in model.parameters():
        parameter.register_hook(torch.clone)  # or .grad becomes the buffer that the next replay writes into
    for number, (x, gradient) in enumerate(zip(inputs, gradients, strict=True), 1):
        replay(x).backward(gradient)
        bias_grad = gradients[:number].double().sum((0, 1))
        print(f"weight_grad_rel_err_{number}={relative_error(model.weight.grad, each[:number].sum(0)):.3e}")
        print(f"bias_grad_rel_err_{number}={relative_error(model.bias.grad, bias_grad):.3e}")
    over_last = (model.weight.grad.double() / each[-1]).median().item()
    print(f"weight_grad_over_last={over_last:.5f}")
    print(f"rel_err_to_multiple_of_last={relative_error(model.weight.grad, over_last * each[-1]):.3e}", flush=True)


if __name__ == "__main__":
    main()
