"""`solve` reads some rows of a stream whose rows are mapped, takes a checkpoint, and resumes a new stream from it.

It hands out the rows before the checkpoint and those after it, all of them doubled: each once, in their order.
"""

import random
from itertools import islice

from datasets import Dataset


def inputs(seed):
    draw = random.Random(seed)
    shards = draw.randrange(2, 5)
    rows = [draw.randrange(10**6) for _ in range(shards * draw.randrange(15, 30))]
    return {"rows": rows, "shards": shards, "read": draw.randrange(3, 9)}


def source(rows, shards):
    return Dataset.from_dict({"row": rows}).to_iterable_dataset(num_shards=shards)


def doubled(example):
    return {"row": 2 * example["row"]}


def solve(rows, shards, read):
    # Not by the stream's map, which reads a whole table ahead: the checkpoint says that it is past all of it.
    stream = source(rows, shards)
    before = [doubled(each)["row"] for each in islice(stream, read)]
    resumed = source(rows, shards)
    resumed.load_state_dict(stream.state_dict())
    return {"before": before, "after": [doubled(each)["row"] for each in resumed]}
