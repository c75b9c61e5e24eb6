# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""torch.arange on a GPU writes the first 2**32 elements and leaves the others as they are.

Look for: the result's memory is full of 77 before. After arange every element from 2**32 on still is 77
(untouched=1048576); arange counts up to there and says nothing. linspace, which shares the kernel, does the same.
"""

import torch

EDGE = 2**32
COUNT = EDGE + 2**20
PART = COUNT  # elements in one call
MARK = 77


def main() -> None:
    x = torch.empty(COUNT, dtype=torch.uint8, device="cuda")  # 4 GiB; as int64 it is 32
    for name in ("arange", "linspace"):
        x.fill_(MARK)
        for start in range(0, COUNT, PART):
            part = x[start : start + PART]
            if name == "arange":
                torch.arange(start, start + len(part), out=part)
            else:
                torch.linspace(5, 5, len(part), out=part)
        due = (torch.arange(2**20, device="cuda") + EDGE) % 256 if name == "arange" else 5
        before = (torch.arange(2**20, device="cuda") + EDGE - 2**20) % 256 if name == "arange" else 5
        print(f"{name}_wrong_before={int((x[EDGE - 2**20 : EDGE] != before).sum())}")
        print(f"{name}_wrong_after={int((x[EDGE:] != due).sum())}")
        print(f"{name}_untouched={int((x[EDGE:] == MARK).sum())}", flush=True)


if __name__ == "__main__":
    main()
