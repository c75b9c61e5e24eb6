"""`solve` reads a stream in several runs, each from the checkpoint of the one before, and hands out each run's rows.

Together they are the rows in their order, none twice and none left out.
"""

import random
from itertools import islice

from datasets import Dataset


def inputs(seed):
    draw = random.Random(seed)
    per_run = draw.randrange(6, 12)
    rows = [draw.randrange(10**6) for _ in range(6 * per_run)]
    return {"rows": rows, "shards": 6, "per_run": per_run, "runs": draw.randrange(3, 6)}


def run(stream, checkpoint, count):
    """The rows that a fresh process reads after this checkpoint, and the checkpoint that it leaves."""
    if checkpoint is not None:
        stream.load_state_dict(checkpoint)
    rows = [example["row"] for example in islice(stream, count)]
    return rows, stream.state_dict()


def solve(rows, shards, per_run, runs):
    checkpoint, seen = None, []
    for _ in range(runs):
        stream = Dataset.from_dict({"row": rows}).to_iterable_dataset(num_shards=shards)
        read, checkpoint = run(stream, checkpoint, per_run)
        seen.append(read)
    return {"runs": seen}
