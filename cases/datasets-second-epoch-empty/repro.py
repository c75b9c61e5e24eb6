# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==2.21.0"]
# ///
"""A stream that can be iterated over once: after map() its second epoch is empty.

What to look for: ten rows in the first epoch and none in the next (rows_in_epoch_2_typed=0). A training loop over them
ends at once, as if it had trained. Without features the same stream has ten rows in each. No warning.
"""

from collections.abc import Iterator

from datasets import Features, IterableDataset, Value

ROWS = 10
FEATURES = {"untyped": None, "typed": Features({"row": Value("int64")})}  # streams of files have features


def rows() -> Iterator[dict[str, int]]:
    yield from ({"row": number} for number in range(ROWS))


def main() -> None:
    for name, features in FEATURES.items():
        stream = IterableDataset.from_generator(rows, features=features).map(lambda example: example)
        for epoch in (1, 2, 3):
            print(f"rows_in_epoch_{epoch}_{name}={sum(1 for _ in stream)}")


if __name__ == "__main__":
    main()
