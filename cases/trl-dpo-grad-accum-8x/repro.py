# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "datasets==5.0.1", "tokenizers==0.21.4", "transformers==4.48.3", "trl==0.13.0"]
# ///
"""DPO with gradient accumulation: trl's loss and gradients are larger by the number of micro-batches.

What to look for: eight pairs in one batch give a loss of ln 2, as they must when policy and reference are the same
model, and the gradient that float64 gives. The same eight one by one, over 8 accumulation steps, give 8 times both
(loss_1x8=5.545, grad_norm_over_exact_1x8=8). No error, no warning.
"""

import copy
import math
import os
import tempfile

SCRATCH = tempfile.TemporaryDirectory()
os.environ.update(
    HF_HOME=SCRATCH.name, HF_HUB_OFFLINE="1", WANDB_MODE="disabled"
)  # nothing is fetched, nothing is kept

import torch  # noqa: E402 the variables must be set before
from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402
from trl import DPOConfig, DPOTrainer  # noqa: E402

PAIRS = 8  # preference pairs in a step, as one micro-batch of 8 or as 8 of one
BETA = 0.1  # DPO's, trl's default
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
WORDS = [*SPECIAL.values(), *(f"w{i}" for i in range(61))]


def tokenizer() -> PreTrainedTokenizerFast:
    """A word is a token; nothing is downloaded."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL)


def pairs() -> Dataset:
    generator = torch.Generator().manual_seed(1)
    lengths = {"prompt": 4, "chosen": 6, "rejected": 6}
    draw = lambda n: " ".join(WORDS[i] for i in torch.randint(3, len(WORDS), (n,), generator=generator))  # noqa: E731
    return Dataset.from_list([{key: draw(n) for key, n in lengths.items()} for _ in range(PAIRS)])


def train(model: LlamaForCausalLM, batch: int) -> tuple[float, float, Dataset]:
    """Loss and gradient norm of one step as logged, and the tokens that it was made of."""
    config = DPOConfig(
        SCRATCH.name, per_device_train_batch_size=batch, gradient_accumulation_steps=PAIRS // batch, max_steps=1,
        learning_rate=0.0, logging_steps=1, max_grad_norm=1e9, beta=BETA, max_length=32, max_prompt_length=16,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = DPOTrainer(
        copy.deepcopy(model), copy.deepcopy(model), config, train_dataset=pairs(), processing_class=tokenizer()
    )
    trainer.train()
    first = trainer.state.log_history[0]
    return float(first["loss"]), float(first["grad_norm"]), trainer.train_dataset


def exact_grad_norm(model: LlamaForCausalLM, rows: Dataset) -> float:
    """In float64. The margin is 0 for equal models, so the loss of a pair is softplus(-BETA * margin) at 0."""
    model = copy.deepcopy(model).double()
    for row in rows:
        log_p = {}
        for side in ("chosen", "rejected"):
            prompt, answer = row["prompt_input_ids"], row[f"{side}_input_ids"]
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            log_p[side] = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum()
        margin = log_p["chosen"] - log_p["rejected"]
        (torch.nn.functional.softplus(-BETA * (margin - margin.detach())) / PAIRS).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            pad_token_id=0,
        )
    )  # fmt: skip
    for batch in (PAIRS, 1):
        loss, norm, rows = train(model, batch)
        print(f"loss_{batch}x{PAIRS // batch}={loss:.4f}")
        print(f"loss_over_ln2_{batch}x{PAIRS // batch}={loss / math.log(2):.4f}")
        print(f"grad_norm_over_exact_{batch}x{PAIRS // batch}={norm / exact_grad_norm(model, rows):.6f}", flush=True)


if __name__ == "__main__":
    main()
