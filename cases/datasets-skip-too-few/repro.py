# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "pyarrow==26.0.1", "datasets==4.8.5"]
# ///
"""Hold out the first rows of a stream for validation, by take(n), and train on the others, by skip(n).

What to look for: 500 rows are held out well. Of 2000 the second thousand is trained on as well
(trained_on_validation_2000=1000), as skip(2000) skips 1000. No error, no warning.
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
