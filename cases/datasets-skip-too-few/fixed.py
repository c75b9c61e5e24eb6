# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==5.0.0"]
# ///
"""The same split with the release that counts a whole table once.

What to look for: training and validation have no row in common, for 500 and for 2000.
"""

from datasets import Dataset

ROWS = 5000
TABLE = 1000  # rows that a stream reads at once

stream = Dataset.from_dict({"row": list(range(ROWS))}).to_iterable_dataset()
for held_out in (TABLE // 2, 2 * TABLE):
    validation = {example["row"] for example in stream.take(held_out)}
    training = [example["row"] for example in stream.skip(held_out)]
    print(f"training_rows_{held_out}={len(training)}")
    print(f"trained_on_validation_{held_out}={len(validation.intersection(training))}")
