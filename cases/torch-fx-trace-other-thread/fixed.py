# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.13.0"]
# ///
"""The same two threads, with one lock around a trace and around a call.

What to look for: rejected_calls=0, and all calls are answered.
"""

import threading
import time

import torch
from torch import fx, nn

LAYERS = 1000  # a trace must take longer than the 5 ms for which Python lets one thread go on
traced = nn.Sequential(*(nn.Linear(4, 4) for _ in range(LAYERS)))
served = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
PAUSE = 0.02  # between requests: a server's thread that is not always at it
REQUESTS = 20
outcomes = []
turns = threading.Lock()


def serve() -> None:
    for _ in range(REQUESTS):
        time.sleep(PAUSE)
        try:
            with turns:
                outcomes.append(served(torch.ones(1, 4)).shape == (1, 4))
        except NameError as error:
            outcomes.append(str(error))


thread = threading.Thread(target=serve)
thread.start()
traces = 0
while thread.is_alive():
    with turns:
        fx.symbolic_trace(traced)
    traces += 1
    time.sleep(PAUSE)
thread.join()

print(f"rejected_calls={outcomes.count('module is not installed as a submodule')}")
print(f"answered_calls={outcomes.count(True)}")
print(f"traces={traces}")
