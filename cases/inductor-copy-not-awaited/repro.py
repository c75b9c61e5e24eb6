# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""A compiled function that copies tensors to the CPU without blocking, waits for the copies by events, and joins them.

What to look for: wrong_calls, in how many of CALLS calls the result is not what was on the GPU: it was joined before the
copies had ended, and has values of an earlier call. Not compiled, the same function is right (wrong_calls_eager=0).
"""

from collections.abc import Callable

import torch

COUNT, TENSORS = 1 << 20, 2  # 4 MiB each
CALLS = 10
CYCLES = 100_000_000  # about 50 ms of the GPU: the copies start after the host would have read them
NON_BLOCKING = True


def gather(tensors: list[torch.Tensor]) -> torch.Tensor:
    copies, events = [], []
    for tensor in tensors:
        copies.append(tensor.to("cpu", non_blocking=NON_BLOCKING))
        event = torch.Event()
        event.record()
        events.append(event)
    for event in events:
        event.synchronize()
    return torch.cat(copies)


def wrong_calls(function: Callable[[list[torch.Tensor]], torch.Tensor]) -> int:
    wrong = 0
    for call in range(CALLS):
        values = [float(call * TENSORS + index + 1) for index in range(TENSORS)]
        tensors = [torch.full((COUNT,), value, device="cuda") for value in values]
        torch.cuda.synchronize()
        torch.cuda._sleep(CYCLES)
        got = function(tensors).clone()
        wrong += any((part != value).any().item() for part, value in zip(got.split(COUNT), values, strict=True))
    return wrong


print(f"wrong_calls_eager={wrong_calls(gather)}")
print(f"wrong_calls={wrong_calls(torch.compile(gather))}")
