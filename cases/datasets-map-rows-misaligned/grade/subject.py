"""`solve` drops the empty texts of a stream by a batched map, and hands out each text that is left with its label."""

import random

from datasets import Dataset

BATCH = 8


def inputs(seed):
    draw = random.Random(seed)
    texts = [draw.choice(["", "", *"abcdefgh"]) * draw.randrange(1, 4) for _ in range(5 * BATCH)]
    return {"texts": texts, "labels": [draw.randrange(10**6) for _ in texts]}


def solve(texts, labels):
    def drop_empty(batch):
        return {"text": [text for text in batch["text"] if text]}

    stream = Dataset.from_dict({"text": texts, "label": labels}).to_iterable_dataset()
    rows = stream.map(drop_empty, batched=True, batch_size=BATCH)
    return {"rows": [[row["text"], row["label"]] for row in rows]}
