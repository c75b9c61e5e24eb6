# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "accelerate==1.2.1", "tokenizers==0.20.3", "transformers==4.45.2"]
# ///
"""Gradient accumulation over sequences of unequal length: tokens of short ones weigh more than tokens of long ones.

What to look for: four sequences of 2 to 64 tokens in one batch have the gradient of float64. The same four one by one,
over 4 accumulation steps, have another, four times as long (rel_err_1x4=3.76). No error, no warning.
"""

import copy
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

LENGTHS = (2, 4, 60, 64)  # tokens: a short answer among long ones is enough
VOCABULARY = 64
IGNORED = -100  # the label of what is not predicted


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    pad = lambda row, value: row["input_ids"] + [value] * (longest - len(row["input_ids"]))  # noqa: E731
    ids, labels = (torch.tensor([pad(row, value) for row in rows]) for value in (0, IGNORED))
    labels[:, 0] = IGNORED  # nothing predicts the first token; some releases count it nevertheless
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != 0).long()}


def trained(model: LlamaForCausalLM, batch: int) -> torch.Tensor:
    """What one step of SGD with a learning rate of 1 takes from the weights: the gradient."""
    model, before = copy.deepcopy(model), torch.nn.utils.parameters_to_vector(model.parameters())
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch, per_device_train_batch_size=batch, gradient_accumulation_steps=len(LENGTHS) // batch, max_steps=1,
            optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0.0, use_cpu=True, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, log_level="error",
        )  # fmt: skip
        rows = [{"input_ids": sequence} for sequence in sequences()]
        Trainer(model, arguments, data_collator=collate, train_dataset=rows).train()
    return before - torch.nn.utils.parameters_to_vector(model.parameters())


def exact(model: LlamaForCausalLM) -> torch.Tensor:
    """In float64: the mean over all predicted tokens of the four."""
    model = copy.deepcopy(model).double()
    losses = []
    for sequence in sequences():
        log_p = model(torch.tensor([sequence])).logits[0, :-1].log_softmax(-1)
        losses.append(-log_p.gather(1, torch.tensor(sequence[1:])[:, None]))
    torch.cat(losses).mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
        )
    )
    right = exact(model)
    for batch in (4, 2, 1):
        wrong = trained(model, batch).double()
        print(f"rel_err_{batch}x{len(LENGTHS) // batch}={(wrong - right).norm() / right.norm():.3g}")
        print(f"norm_over_exact_{batch}x{len(LENGTHS) // batch}={wrong.norm() / right.norm():.3f}", flush=True)


if __name__ == "__main__":
    main()
