# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==5.0.1"]
# ///
"""The same three runs with the release of datasets whose resumed streams keep count.

What to look for: the third run goes on at row 20; every row is read once.
"""

from itertools import islice

from datasets import Dataset, IterableDataset

ROWS, SHARDS = 40, 4  # so a run of ten ends at the last row of a shard
PER_RUN = 10  # what a run reads before it is stopped


def stream() -> IterableDataset:
    return Dataset.from_dict({"row": list(range(ROWS))}).to_iterable_dataset(num_shards=SHARDS)


def run(checkpoint: dict | None) -> tuple[list[int], dict]:
    """The rows that a fresh process reads after this checkpoint, and the checkpoint that it leaves."""
    data = stream()
    if checkpoint is not None:
        data.load_state_dict(checkpoint)
    rows = [example["row"] for example in islice(data, PER_RUN)]
    return rows, data.state_dict()


def main() -> None:
    checkpoint, seen = None, []
    for number in range(3):
        rows, checkpoint = run(checkpoint)
        print(f"first_row_of_run_{number}={rows[0]}")
        seen += rows
    print(f"read_twice={len(seen) - len(set(seen))}")
    print(f"never_read={len(set(range(3 * PER_RUN)) - set(seen))}")


if __name__ == "__main__":
    main()
