# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "transformers==5.5.4"]
# ///
"""A mixture of experts' load-balancing loss with hardly a gradient: softmax is taken of the router's probabilities.

What to look for: a router that prefers one expert. The auxiliary loss is 2.84 where its logits give 7.04, and the
router's gradient is a fifth of what it must be (grad_norm_over_exact=0.215), and another. No error, no warning.
"""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

EXPERTS, ACTIVE = 8, 2  # Mixtral's own
WIDTH, VOCABULARY, TOKENS = 32, 64, 64
PREFERENCE = 4.0  # for the first expert, the other logits are near 0: the state that the loss is there to correct


def unbalanced() -> tuple[MixtralForCausalLM, torch.nn.Module]:
    """A model of one layer, and its router."""
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=ACTIVE, output_router_logits=True,
    )  # fmt: skip
    model = MixtralForCausalLM(config)
    router = model.model.layers[0].mlp.gate
    with torch.no_grad():
        model.model.embed_tokens.weight.add_(0.05)  # a mean that is not zero
        router.weight[0] += PREFERENCE / WIDTH  # so its logit is PREFERENCE times the mean of the hidden state
    return model, router


def exact(hidden: torch.Tensor, weight: torch.Tensor) -> tuple[float, torch.Tensor]:
    """In float64, by the formula: experts * sum of (share of the choices * mean probability)."""
    weight = weight.detach().double().requires_grad_()
    probability = (hidden.double() @ weight.T).softmax(-1)
    chosen = torch.zeros_like(probability).scatter(1, probability.topk(ACTIVE).indices, 1.0)
    loss = EXPERTS * (chosen.mean(0) * probability.mean(0)).sum()
    loss.backward()
    return loss.item(), weight.grad


def main() -> None:
    model, router = unbalanced()
    hidden = []
    router.register_forward_pre_hook(lambda module, inputs: hidden.append(inputs[0].detach().reshape(-1, WIDTH)))
    tokens = torch.randint(VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    got = model(tokens).aux_loss
    got.backward()
    loss, gradient = exact(hidden[0], router.weight)
    print(f"loss={got.item():.4f}")
    print(f"exact_loss={loss:.4f}")
    print(f"grad_norm_over_exact={router.weight.grad.norm() / gradient.norm():.4f}")
    print(f"grad_rel_err={(router.weight.grad - gradient).norm() / gradient.norm():.3g}")


if __name__ == "__main__":
    main()
