# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "transformers==4.45.0"]
# ///
"""The same prompt and pads with the release that keeps padding out of Mamba's convolution and out of its state.

What to look for: whatever stands to the left, Mamba's logits are those of the prompt alone, as the Llama's are: all
relative errors are 0.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM

PAD, PROMPT = 0, [5, 6, 7]  # ids of a vocabulary of 64; which ones matters to nothing
PADS = (1, 3, 9, 27)  # the convolution reaches back 3 tokens, the state as far as there is anything


def last_logits(model: torch.nn.Module, pads: int) -> torch.Tensor:
    """Logits after the prompt's last token, with so many pads before its first."""
    ids = torch.tensor([[PAD] * pads + PROMPT])
    mask = torch.tensor([[0] * pads + [1] * len(PROMPT)])
    positions = {} if isinstance(model, MambaForCausalLM) else {"position_ids": (mask.cumsum(1) - 1).clamp(0)}
    return model(ids, attention_mask=mask, use_cache=False, **positions).logits[0, -1]


def main() -> None:
    torch.manual_seed(0)
    tiny = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}  # random, in float64
    mamba = MambaForCausalLM(MambaConfig(**tiny, state_size=8)).double().eval()
    llama = LlamaForCausalLM(LlamaConfig(**tiny, intermediate_size=64, num_attention_heads=4)).double().eval()
    with torch.no_grad():
        for name, model in {"llama": llama, "mamba": mamba}.items():
            exact = last_logits(model, 0)
            for pads in PADS:
                error = (last_logits(model, pads) - exact).norm() / exact.norm()
                print(f"{name}_rel_err_{pads}={error.item():.3g}", flush=True)


if __name__ == "__main__":
    main()
