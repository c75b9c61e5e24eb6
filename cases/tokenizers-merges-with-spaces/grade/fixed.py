"""`solve` trains a tokenizer whose tokens may have spaces in them, saves it, loads it, and hands out lines' tokens.

They are to be those that the trained tokenizer gives before it is saved. No line has an exclamation mark.
"""

import random

from tokenizers import Tokenizer, models, normalizers, trainers


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
    # A merge is saved as two tokens with a space between. In the place of spaces inside: the next character of Unicode.
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "!")
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    loaded = Tokenizer.from_str(tokenizer.to_str())
    return {"tokens": [[token.replace("!", " ") for token in loaded.encode(line).tokens] for line in lines]}
