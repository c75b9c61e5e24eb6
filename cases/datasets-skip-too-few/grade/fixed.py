"""`solve` holds out the first rows of a stream for validation, and hands out these and the others, for training."""

import random
from itertools import islice

from datasets import Dataset


def inputs(seed):
    draw = random.Random(seed)
    rows = [draw.randrange(10**6) for _ in range(draw.randrange(4000, 6000))]
    return {"rows": rows, "held_out": draw.randrange(1500, 3500)}


def solve(rows, held_out):
    stream = Dataset.from_dict({"row": rows}).to_iterable_dataset()
    validation = [example["row"] for example in stream.take(held_out)]
    training = [example["row"] for example in islice(stream, held_out, None)]  # skip counts a table of 1000 rows twice
    return {"validation": validation, "training": training}
