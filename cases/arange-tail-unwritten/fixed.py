# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same tensor, filled in three calls.

Look for: arange and linspace write every element, and untouched counts those whose value happens to be 77.
"""

import torch

EDGE = 2**32
COUNT = EDGE + 2**20
PART = 2**31  # elements in one call
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
