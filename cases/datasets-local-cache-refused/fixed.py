# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==1.26.4", "pyarrow==14.0.1", "fsspec==2023.10.0", "datasets==2.14.6"]
# ///
"""The same with the release of datasets that takes either name for the local file system.

What to look for: three rows, and the right ones.
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
