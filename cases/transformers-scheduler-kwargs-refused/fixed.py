# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "accelerate==1.12.0", "tokenizers==0.22.1", "transformers==4.57.5"]
# ///
"""The same command line with the release of transformers in which the argument's text reaches TrainingArguments.

What to look for: the learning rate of the last step is the min_lr that was asked for (last_lr=1e-06).
"""

import torch
from transformers import HfArgumentParser, TrainingArguments, get_scheduler

STEPS = 10
COMMAND_LINE = ["--learning_rate", "1e-4", "--lr_scheduler_type", "cosine_with_min_lr"]
COMMAND_LINE += ["--lr_scheduler_kwargs", '{"min_lr": 1e-6}', "--use_cpu", "True", "--output_dir", "out"]


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(COMMAND_LINE)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=arguments.learning_rate)
    scheduler = get_scheduler(
        arguments.lr_scheduler_type, optimizer, 0, STEPS, scheduler_specific_kwargs=arguments.lr_scheduler_kwargs
    )
    for _ in range(STEPS):
        optimizer.step()
        scheduler.step()
    print(f"last_lr={scheduler.get_last_lr()[0]:.3g}")


if __name__ == "__main__":
    main()
