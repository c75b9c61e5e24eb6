# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""An RWKV-like projector in front of a language model, in two steps: with the language model frozen, and unfrozen.

Look for: in both steps no token id is overwritten, and the gradients of decay and embedding equal the float64 ones.
"""

import torch
import triton
import triton.language as tl

# One row of the decay's gradient is C * 4 = 256 bytes, and PyTorch's allocator gives a tensor of that size a block of
# 512. B rows are 1024 bytes: the other half of that block, and the 512 bytes of whatever comes behind it. The ids of
# B * TEXT tokens are just as long. T and VOCABULARY matter to nothing.
B, T, C, TEXT, VOCABULARY = 4, 16, 64, 16, 1000


@triton.jit
def decay_gradient(decay, key, dy, rows, T, C: tl.constexpr):
    """One program per sequence, and for each a row of gradients: `rows` must hold B * C values."""
    b, c = tl.program_id(0), tl.arange(0, C)
    d = tl.load(decay + c)
    y, dy_dd, total = tl.zeros([C], tl.float32), tl.zeros([C], tl.float32), tl.zeros([C], tl.float32)
    for t in range(T):
        at = (b * T + t) * C + c
        dy_dd = y + d * dy_dd
        y = d * y + tl.load(key + at)
        total += tl.load(dy + at) * dy_dd
    tl.store(rows + b * C + c, total)


def recurrence(decay: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """y_t = decay * y_{t-1} + key_t over dimension 1."""
    outputs = [torch.zeros_like(key[:, 0])]
    for t in range(T):
        outputs.append(decay * outputs[-1] + key[:, t])
    return torch.stack(outputs[1:], 1)


class Projector(torch.autograd.Function):
    """The recurrence over image features that come from a frozen encoder, so only the decay gets a gradient."""

    @staticmethod
    def forward(ctx, decay, key):
        ctx.save_for_backward(decay, key)
        return recurrence(decay, key)

    @staticmethod
    def backward(ctx, dy):
        decay, key = ctx.saved_tensors
        rows = decay.new_empty(B, C)
        decay_gradient[(B,)](decay, key, dy.contiguous(), rows, T, C, num_warps=2)
        torch.cuda.synchronize()  # a fault of this kernel would come to light here
        print("the projector's backward has finished", flush=True)
        return rows.sum(0), None


def ids_behind_a_free_block() -> torch.Tensor:
    """Room for the token ids, just behind the free block that the decay's gradient is going to get.

    In a long run such neighbours come about by chance. Here: two blocks in a row, and the first one given back.
    """
    block = torch.empty(C, device="cuda")
    ids = torch.empty(B, TEXT, dtype=torch.int64, device="cuda")
    assert ids.data_ptr() - block.data_ptr() == 512, "the allocator did not put these two side by side"
    return ids


def relative_error(got: torch.Tensor, exact: torch.Tensor) -> float:
    return ((got.cpu().double() - exact).norm() / exact.norm()).item()


def main() -> None:
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (B, TEXT))
    key, dy = torch.randn(B, T, C), torch.randn(B, T + TEXT, C)
    exact = torch.rand(C).double().requires_grad_()
    recurrence(exact, key.double()).backward(dy[:, :T].double())
    exact_embedding = torch.zeros(VOCABULARY, C).double().index_add_(0, ids.flatten(), dy[:, T:].double().flatten(0, 1))

    decay = exact.detach().float().cuda().requires_grad_()
    key_gpu, dy_gpu = key.cuda(), dy.cuda()
    embedding = torch.nn.Embedding(VOCABULARY, C, device="cuda")
    ids_gpu = ids_behind_a_free_block()

    for stage in ("frozen", "unfrozen"):
        embedding.weight.requires_grad_(stage == "unfrozen")
        decay.grad = None
        ids_gpu.copy_(ids)
        text = embedding(ids_gpu)  # before the image, so that in backward it comes after the image
        hidden = torch.cat([Projector.apply(decay, key_gpu), text], 1)
        hidden.backward(dy_gpu)  # from a given gradient: a loss, being small, would take the free block
        torch.cuda.synchronize()
        print(f"ids_overwritten_{stage}={(ids_gpu.cpu() != ids).sum().item()}")
        print(f"decay_grad_rel_err_{stage}={relative_error(decay.grad, exact.grad):.3e}", flush=True)
    print(f"embedding_grad_rel_err={relative_error(embedding.weight.grad, exact_embedding):.3e}")


if __name__ == "__main__":
    main()
