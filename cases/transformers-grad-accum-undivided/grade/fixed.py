"""`solve` takes one step of SGD over some micro-batches with transformers' Trainer, and hands out the gradient's norm.

It is to be that of the mean loss over all tokens that are predicted. All sequences are equally long.
"""

import copy
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY = 64


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    steps = 2 + int(torch.randint(4, (), generator=generator))
    return {"seed": seed, "sequences": torch.randint(3, VOCABULARY, (steps, 12), generator=generator)}


def model_of(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
        )
    )


def solve(seed, sequences):
    model = model_of(seed)
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch, per_device_train_batch_size=1, gradient_accumulation_steps=len(sequences), max_steps=1,
            optim="sgd", learning_rate=1.0, lr_scheduler_type="constant", max_grad_norm=0.0, use_cpu=True, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, log_level="error",
        )
        rows = [{"input_ids": each, "labels": each} for each in sequences]
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.model_accepts_loss_kwargs = False  # or each micro-batch counts as if it were the whole step
        trainer.train()
    gradient = before - torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    return {"norm": gradient.double().norm(), "some": gradient[:: 257]}
