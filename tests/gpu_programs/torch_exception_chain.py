# mypy: ignore-errors
"""An exception raised while another one was handled, and one raised from another."""

import torch


class StepError(Exception):
    pass


def look_up() -> float:
    table = torch.zeros(4, device="cuda")
    return table[torch.tensor([7], device="cuda")].sum().item()


try:
    look_up()
except RuntimeError as error:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise StepError("step 3 failed\nwith a second line") from error
