# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==4.6.0"]
# ///
"""The same two streams with the release of datasets in which a mix of split streams is split too.

What to look for: in either order, no row is on two ranks (on_several_ranks_split_first=0).
"""

from collections import Counter

from datasets import Dataset, IterableDataset, interleave_datasets
from datasets.distributed import split_dataset_by_node

RANKS = 4
ROWS, SHARDS = 80, 8  # shards that the ranks divide evenly: no rank skips rows of another's shard


def streams() -> list[IterableDataset]:
    return [
        Dataset.from_dict({"row": list(range(start, start + ROWS))}).to_iterable_dataset(num_shards=SHARDS)
        for start in (0, ROWS)
    ]


def mix(streams: list[IterableDataset]) -> IterableDataset:
    return interleave_datasets(streams, probabilities=[0.5, 0.5], seed=42)


def rows(rank: int, *, split_first: bool) -> list[int]:
    if split_first:
        data = mix([split_dataset_by_node(stream, rank, RANKS) for stream in streams()])
    else:
        data = split_dataset_by_node(mix(streams()), rank, RANKS)
    return [example["row"] for example in data]


def main() -> None:
    for name, split_first in {"mixed_first": False, "split_first": True}.items():
        ranks = Counter(row for rank in range(RANKS) for row in set(rows(rank, split_first=split_first)))
        print(f"rows_read_{name}={len(ranks)}")
        print(f"on_several_ranks_{name}={sum(count > 1 for count in ranks.values())}")


if __name__ == "__main__":
    main()
