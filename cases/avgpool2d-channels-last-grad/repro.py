# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""avg_pool2d on a GPU gives wrong input gradients where the input is channels_last and padding is not 0.

Look for: every output is right, and so is the gradient without padding (k3s2p0). With padding 1 it is the right gradient,
one pixel further down and right: grad_rel_err is far from 0, grad_rel_err_to_shifted is rounding error. No error.
"""

import torch
import torch.nn.functional as F

FORMAT = torch.channels_last
# Kernel, stride and padding: a ResNet's pooling, an Inception's, and one without padding, which is right.
POOLS = {"k3s2p1": (3, 2, 1), "k3s1p1": (3, 1, 1), "k3s2p0": (3, 2, 0)}


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    for name, pool in POOLS.items():
        x = torch.randn(2, 16, 32, 32, dtype=torch.double, requires_grad=True)
        exact = F.avg_pool2d(x, *pool)
        gradient = torch.randn_like(exact)
        exact.backward(gradient)

        y = x.detach().float().cuda().to(memory_format=FORMAT).requires_grad_()
        out = F.avg_pool2d(y, *pool)
        out.backward(gradient.float().cuda().to(memory_format=FORMAT))
        print(f"out_rel_err_{name}={relative_error(out.cpu(), exact.detach()):.3e}")
        print(f"grad_rel_err_{name}={relative_error(y.grad.cpu(), x.grad):.3e}")
        padding, size = pool[2], x.shape[-1]
        shifted = x.grad[..., : size - padding, : size - padding]
        print(f"grad_rel_err_to_shifted_{name}={relative_error(y.grad.cpu()[..., padding:, padding:], shifted):.3e}")


if __name__ == "__main__":
    main()
