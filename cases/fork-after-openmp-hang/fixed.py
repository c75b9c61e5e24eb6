# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same with a child that is started by spawn.

What to look for: child_sum=4000000 and child_exit_status=0.
"""

import torch
import torch.multiprocessing as mp

N = 4_000_000  # more than 32768, from where on PyTorch uses several threads
START = "spawn"


def child_sum() -> None:
    torch.set_num_threads(2)
    print(f"child_sum={int(torch.ones(N).sum())}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(2)  # on a machine with one core PyTorch would use one, and nothing would hang
    print(f"parent: sum {int(torch.ones(N).sum())}", flush=True)
    child = mp.get_context(START).Process(target=child_sum)
    child.start()
    child.join()
    print(f"child_exit_status={child.exitcode}")
