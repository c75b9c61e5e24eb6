"""`solve` answers requests by a model in one thread while another one traces another model, and hands out the answers.

Every request has an answer.
"""

import threading
import time

import torch
from torch import fx, nn

TRACED = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))  # a trace of this model takes some milliseconds
PAUSE = 0.02


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    weight, bias = (torch.randn(shape, generator=generator) for shape in ((4, 4), (4,)))
    return {"weight": weight, "bias": bias, "requests": torch.randn(20, 1, 4, generator=generator)}


def solve(weight, bias, requests):
    served = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    served[0].load_state_dict({"weight": weight, "bias": bias})
    answers, turns = [], threading.Lock()

    def serve():
        for request in requests:
            time.sleep(PAUSE)
            with turns:  # a trace replaces nn.Module.__call__ for all threads
                answers.append(served(request).detach())

    thread = threading.Thread(target=serve)
    thread.start()
    while thread.is_alive():
        with turns:
            fx.symbolic_trace(TRACED)
        time.sleep(PAUSE)
    return {"answers": torch.cat(answers)}
