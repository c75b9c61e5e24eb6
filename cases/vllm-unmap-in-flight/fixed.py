# /// script
# requires-python = "==3.11.*"
# dependencies = ["torch==2.11.0", "vllm==0.22.0"]
# [[tool.uv.dependency-metadata]]
# name = "vllm"
# requires-dist = []
# ///
"""The same with vLLM 0.22.0, whose allocator waits for the GPU before it unmaps anything.

What to look for: leaving the pool takes as long as the kernels in the queue (leave_ms), and the synchronize behind it
returns (synchronized=1).
"""

import sys
import time
from importlib.util import find_spec, module_from_spec
from unittest.mock import MagicMock

import torch

for name in ("vllm", "vllm.distributed"):
    sys.modules[name] = module_from_spec(find_spec(name))  # without its __init__, which imports the whole server
for name in ("psutil", "vllm.platforms", "vllm.platforms.interface", "vllm.ray.lazy_utils"):
    sys.modules[name] = MagicMock()
sys.modules["vllm.platforms"].current_platform.is_rocm.return_value = False
from vllm.device_allocator.cumem import CuMemAllocator  # noqa: E402

allocator = CuMemAllocator.get_instance()
torch.zeros(1, device="cuda")  # so that the GPU is ready
torch.cuda.synchronize()

start = time.perf_counter()
with allocator.use_memory_pool(tag="weights"):
    for _ in range(200):
        torch.randn(2048, 7168, device="cuda")
    print(f"queued_ms={(time.perf_counter() - start) * 1e3:.2f}")
    done = torch.cuda.Event()
    done.record()  # behind the last of the kernels
    print(f"done_at_the_end_of_the_loop={int(done.query())}")
    start = time.perf_counter()
print(f"leave_ms={(time.perf_counter() - start) * 1e3:.2f}")
print(f"done_when_unmapped={int(done.query())}", flush=True)
torch.cuda.synchronize()
print("synchronized=1")
