# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""cuDNN's attention backward gives NaN in the queries' gradient, for some sequence lengths, where a mask is passed.

Look for: with 704 tokens every value of dq is NaN (nonfinite_dq_704=45056), while the output, dk and dv are finite and
right. With 640 and 768 tokens all is right. The mask is all True and changes nothing but the path; nothing says that
cuDNN was chosen (backend=3), for that is the default on an H100 or H200.
"""

import math

import torch
import torch.nn.functional as F

LENGTHS = (640, 704, 768)  # 704 leaves 64 of the last 128 keys' tile empty; 640 and 768 leave none
DIM = 64  # head size
SHIFT = -120.0  # every logit is about this. exp(-SHIFT) must overflow float32, so: below -88.7
CUDNN = True  # the default

torch.backends.cuda.enable_cudnn_sdp(CUDNN)


def inputs(length: int) -> list[torch.Tensor]:
    """q, k, v of one head. Channel 0 of q and k shifts all logits by the same, as some heads of language models do."""
    q, k, v = (scale * torch.randn(1, 1, length, DIM, device="cuda") for scale in (0.1, 0.1, 1.0))
    q[..., 0], k[..., 0] = 1.0, SHIFT * math.sqrt(DIM)
    return [x.bfloat16().requires_grad_() for x in (q, k, v)]


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q @ k.transpose(-1, -2)) / math.sqrt(DIM)).softmax(-1) @ v


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    print(f"cudnn_version={torch.backends.cudnn.version()}")
    for length in LENGTHS:
        q, k, v = inputs(length)
        mask = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda")
        if length == LENGTHS[0]:
            print(f"backend={int(torch._fused_sdp_choice(q, k, v, mask))}")  # 0 math, 1 flash, 2 efficient, 3 cuDNN
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        gradient = torch.randn_like(out)
        out.backward(gradient)

        exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
        exact_out = exact_attention(*exact)
        exact_out.backward(gradient.double())
        print(f"out_rel_err_{length}={relative_error(out, exact_out):.3e}")
        for name, got, right in zip(("dq", "dk", "dv"), (q, k, v), exact, strict=True):
            # dq's channel 0 is a sum that cancels, of numbers around 1000: noise in bf16, with any backend.
            channels = slice(1, None) if name == "dq" else slice(None)
            print(f"nonfinite_{name}_{length}={(~got.grad.isfinite()).sum().item()}")
            print(f"{name}_rel_err_{length}={relative_error(got.grad[..., channels], right.grad[..., channels]):.3e}")


if __name__ == "__main__":
    main()
