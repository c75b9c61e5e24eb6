# /// script
# requires-python = "==3.11.*"
# dependencies = ["torch==2.11.0", "vllm==0.7.2"]
# [[tool.uv.dependency-metadata]]
# name = "vllm"
# requires-dist = []
# ///
"""vLLM 0.7.2's sleep-mode allocator wakes up with no memory to wake up in, says so on stderr only, and goes on.

What to look for: "CUDA Error: out of memory at ...:56" on stderr, "invalid argument" for the handle that sleep has given
back and that is mapped all the same, wake_up_returned=1, and at the next step "CUDA error: an illegal memory access was
encountered": there is no page behind the cache's address. It may also die of a segmentation fault in wake_up.

The cache and the trainer each take 60 % of the free memory, never both at once. Nothing of it goes to the host. The
released allocator runs, in Python and C++; a stand-in has the place of vllm.utils, of which it imports one function.
"""

import faulthandler
import sys
from importlib.util import find_spec, module_from_spec
from types import SimpleNamespace

import torch

for name in ("vllm", "vllm.distributed"):
    sys.modules[name] = module_from_spec(find_spec(name))  # without its __init__, which imports the whole server
sys.modules["vllm.utils"] = SimpleNamespace(is_pin_memory_available=lambda: True)
from vllm.device_allocator.cumem import CuMemAllocator  # noqa: E402

faulthandler.enable()  # to see in which call it dies
BATCH, VOCAB, HIDDEN, STEPS = 256, 4096, 256, 4  # the part of the cache in use; any will do
SHARE = 0.6  # of the free memory: two tenants with 60 % each can't both have it, whatever the size of the GPU


def generate():
    tokens = torch.arange(BATCH, device="cuda")
    for step in range(STEPS):
        kv_cache[:, step] = weights[tokens]
        hidden = kv_cache[:, : step + 1].mean(1)
        tokens = (hidden @ weights.T).argmax(-1)
    return tokens.tolist()


torch.manual_seed(0)
weights = torch.randn(VOCAB, HIDDEN, device="cuda")
allocator = CuMemAllocator.get_instance()
# Its C++ code borrows the two callbacks, and a method that nobody holds is gone with the call that it was passed to.
allocator.python_malloc_callback = allocator.python_malloc_callback
allocator.python_free_callback = allocator.python_free_callback
with allocator.use_memory_pool(tag="kv_cache"):
    memory = torch.empty(int(torch.cuda.mem_get_info()[0] * SHARE), dtype=torch.uint8, device="cuda")
kv_cache = memory[: BATCH * STEPS * HIDDEN * 4].view(torch.float32).view(BATCH, STEPS, HIDDEN)
awake = generate()
print(f"tokens_awake={len(awake)}")
allocator.sleep(offload_tags=())  # level 2: nothing is kept on the host
print("asleep=1", flush=True)

trainer = torch.empty(int(torch.cuda.mem_get_info()[0] * SHARE), dtype=torch.uint8, device="cuda")  # holds on to it
try:
    allocator.wake_up()
    print("wake_up_returned=1", flush=True)
except RuntimeError as error:
    print(f"wake_up_raised=1\n{error}", flush=True)
    del trainer
    torch.cuda.empty_cache()
    allocator.wake_up()
tokens = generate()
print(f"tokens_as_before={sum(a == b for a, b in zip(tokens, awake, strict=True))}")
