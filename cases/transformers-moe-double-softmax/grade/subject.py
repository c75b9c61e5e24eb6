"""`solve` hands out the load-balancing loss of a mixture of experts, and its gradient for the router's weight.

The loss is experts * sum over experts of (share of the choices * mean probability).
"""

import torch
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

EXPERTS, ACTIVE, WIDTH, VOCABULARY = 8, 2, 32, 64


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return {"seed": seed, "tokens": torch.randint(VOCABULARY, (1, 64), generator=generator)}


def unbalanced(seed):
    """A model of one layer whose router prefers the first expert, and that router."""
    torch.manual_seed(seed)
    config = MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=ACTIVE, output_router_logits=True,
    )
    model = MixtralForCausalLM(config)
    router = model.model.layers[0].mlp.gate
    with torch.no_grad():
        model.model.embed_tokens.weight.add_(0.05)
        router.weight[0] += 4.0 / WIDTH
    return model, router


def solve(seed, tokens):
    model, router = unbalanced(seed)
    loss = load_balancing_loss_func(model(tokens).router_logits, EXPERTS, ACTIVE)
    loss.backward()
    return {"loss": loss, "gradient": router.weight.grad}
