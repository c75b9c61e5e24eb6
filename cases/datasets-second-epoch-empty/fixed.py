# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==3.0.0"]
# ///
"""The same streams with the release of datasets in which each epoch begins at the first row.

What to look for: ten rows in every epoch, with features and without.
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
