"""`solve` trains a tokenizer whose tokens may have spaces in them, saves it, loads it, and hands out lines' tokens.

They are to be those that the trained tokenizer gives before it is saved. No line has an exclamation mark.
"""

import random

from tokenizers import Tokenizer, models, trainers


def inputs(seed):
    draw = random.Random(seed)
    registers = ["rax", "rbx", "rcx", "rdi", "rsi"]
    lines = [f"mov {draw.choice(registers)} , {draw.choice(registers)}" for _ in range(60)]
    lines += [f"push {draw.choice(registers)}" for _ in range(40)]
    return {"lines": lines, "size": draw.randrange(40, 60)}


def trained(lines, size):
    tokenizer = Tokenizer(models.BPE())  # no pre-tokenizer splits at spaces
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    return tokenizer


def solve(lines, size):
    tokenizer = Tokenizer.from_str(trained(lines, size).to_str())
    return {"tokens": [tokenizer.encode(line).tokens for line in lines]}
