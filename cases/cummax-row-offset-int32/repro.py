# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.cummax along the last dimension of over 2**31 elements reads and writes 2 GiB before its tensors.

Look for: with exactly 2**31 elements every value and index is right (wrong_at_2_31=0). With 64 rows more it ends in
"CUDA error: an illegal memory access was encountered". cummin does the same.
"""

import torch

COLUMNS = 1024
EDGE = 2**31 // COLUMNS  # the first row whose offset has no room in 32 bits with a sign
CHUNK = 2**22  # rows in one call: all


def wrong(rows: int) -> int:
    """How many values and indices are wrong, for rows of 1, 2, 0, 0, ... whose running maximum is 1, 2, 2, 2, ..."""
    x = torch.zeros(rows, COLUMNS, dtype=torch.int8, device="cuda")
    x[:, 0], x[:, 1] = 1, 2
    values = torch.empty_like(x)
    indices = torch.empty(rows, COLUMNS, dtype=torch.int64, device="cuda")  # 16 GiB
    for part, *out in zip(x.split(CHUNK), values.split(CHUNK), indices.split(CHUNK), strict=True):
        torch.cummax(part, -1, out=out)
    torch.cuda.synchronize()
    count = 0
    for value, index in zip(values.split(2**18), indices.split(2**18), strict=True):  # a sum over all wants 16 GiB more
        count += int((value[:, 0] != 1).sum() + (value[:, 1:] != 2).sum())
        count += int((index[:, 0] != 0).sum() + (index[:, 1:] != 1).sum())
    return count


def main() -> None:
    print(f"wrong_at_2_31={wrong(EDGE)}", flush=True)
    print(f"wrong_above_2_31={wrong(EDGE + 64)}", flush=True)


if __name__ == "__main__":
    main()
