# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0", "numpy==2.2.6", "accelerate==0.23.0"]
# ///
"""Eleven samples in batches of five, and what gather_for_metrics makes of them.

What to look for: without drop_last all eleven come out. With drop_last the loader gives ten, and six come out
(gathered_drop_last=6). No error, no warning.
"""

from accelerate import Accelerator
from torch.utils.data import DataLoader

SAMPLES, BATCH = 11, 5  # one more than two batches have

accelerator = Accelerator(cpu=True)
for name, drop_last in {"keep_last": False, "drop_last": True}.items():
    loader = accelerator.prepare(DataLoader(range(SAMPLES), batch_size=BATCH, drop_last=drop_last))
    given, gathered = [], []
    for batch in loader:
        given += batch.tolist()
        gathered += accelerator.gather_for_metrics(batch).tolist()
    print(f"given_{name}={len(given)}")
    print(f"gathered_{name}={len(gathered)}")
