# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==5.0.0"]
# ///
"""A batched map over a stream that drops rows of one column: the other column is paired with it by position.

What to look for: a function that drops empty texts and returns nothing but the texts. Of the 6 that are left, 5 have
the label of another text (wrong_labels_stream=5). No error, no warning. In memory the same map raises.
"""

from datasets import Dataset

TEXTS = ["a", "", "b", "c", "", "d", "e", "f"]  # their labels are their upper case
BATCH = 8  # all in one batch


def drop_empty(batch: dict[str, list[str]]) -> dict[str, list[str]]:
    return {"text": [text for text in batch["text"] if text]}


def main() -> None:
    data = Dataset.from_dict({"text": TEXTS, "label": [text.upper() for text in TEXTS]})
    for name, source in {"in_memory": data, "stream": data.to_iterable_dataset()}.items():
        try:
            rows = list(source.map(drop_empty, batched=True, batch_size=BATCH))
        except (ValueError, IndexError) as refusal:  # in memory it is pyarrow's ArrowInvalid, a ValueError
            print(f"{name}: {refusal}")
            rows = []
        print(f"rows_{name}={len(rows)}")
        print(f"wrong_labels_{name}={sum(row['label'] != row['text'].upper() for row in rows)}")


if __name__ == "__main__":
    main()
