# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==4.8.4"]
# ///
"""A mapped stream that is resumed: the rows between the checkpoint and the end of its Arrow table are skipped.

What to look for: a stream of 40 rows in two tables, with a map that changes nothing. After a checkpoint at row 5
the stream goes on at row 20 (first_row_after_resume_mapped=20): 15 rows are never read. Without map it goes on at 5.
"""

from itertools import islice

from datasets import Dataset, IterableDataset

ROWS, SHARDS = 40, 2  # 20 rows in each shard, which is one table
READ = 5  # rows before the checkpoint: in the middle of the first table


def stream(*, mapped: bool) -> IterableDataset:
    data = Dataset.from_dict({"row": list(range(ROWS))}).to_iterable_dataset(num_shards=SHARDS)
    return data.map(lambda example: example) if mapped else data


def main() -> None:
    for name, mapped in {"plain": False, "mapped": True}.items():
        data = stream(mapped=mapped)
        before = [example["row"] for example in islice(data, READ)]
        checkpoint = data.state_dict()
        resumed = stream(mapped=mapped)
        resumed.load_state_dict(checkpoint)
        after = [example["row"] for example in resumed]
        print(f"first_row_after_resume_{name}={after[0]}")
        print(f"never_read_{name}={ROWS - len({*before, *after})}")


if __name__ == "__main__":
    main()
