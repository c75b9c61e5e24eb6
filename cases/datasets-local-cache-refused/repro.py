# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==1.26.4", "pyarrow==14.0.1", "fsspec==2023.10.0", "datasets==2.14.4"]
# ///
"""Load a JSON file of three rows with an fsspec that calls the local file system by two names.

What to look for: NotImplementedError, Loading a dataset cached in a LocalFileSystem is not supported. The cache is a
directory on this machine, and the data set has just been written into it.
"""

import json
import tempfile
from pathlib import Path

from datasets import Dataset

ROWS = 3

with tempfile.TemporaryDirectory() as directory:
    file = Path(directory, "rows.json")
    file.write_text("".join(json.dumps({"row": number}) + "\n" for number in range(ROWS)))
    data = Dataset.from_json(str(file), cache_dir=directory)  # as load_dataset("json", ...) does
    print(f"wrong_rows={sum(row['row'] != number for number, row in enumerate(data))}")
    print(f"rows={len(data)}")
