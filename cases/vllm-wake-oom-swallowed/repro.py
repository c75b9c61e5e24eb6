# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""An engine wakes up with no memory to wake up in, says so on stderr only, and carries on.

What to look for: "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY" on stderr, yet wake_up returns (wake_up_returned=1), with the
key/value cache at its old address and nothing behind it. The next generate writes to it: "an illegal memory access was
encountered", raised at the copy of the tokens to the host; with CUDA_LAUNCH_BLOCKING=1 at that first write.
The cache and the trainer each take 60 % of the free memory, never both at once. Nothing of it goes to the host.
"""

import ctypes
import struct
import sys
from types import SimpleNamespace

import torch

BATCH, VOCAB, HIDDEN, STEPS = 256, 4096, 256, 4  # the part of the cache in use; any will do
SHARE = 0.6  # of the free memory: two tenants with 60 % each can't both have it, whatever the size of the GPU


class KvCache:
    """Device memory that can lose and regain its physical pages at an unchanged address, as in vLLM's sleep mode."""

    def __init__(self):
        self.driver, self.base, granule = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_uint64()
        self.kind = struct.pack("iiiiQQ", 1, 0, 1, 0, 0, 0)  # CUmemAllocationProp: pinned, no export, device 0
        self.call("cuMemGetAllocationGranularity", ctypes.byref(granule), self.kind, 0)
        self.size = int(torch.cuda.mem_get_info()[0] * SHARE) // granule.value * granule.value
        self.call("cuMemAddressReserve", ctypes.byref(self.base), self.size, 0, 0, 0)
        self.wake_up()
        place = {"data": (self.base.value, False), "shape": (BATCH, STEPS, HIDDEN), "typestr": "<f4", "strides": None}
        memory = SimpleNamespace(__cuda_array_interface__={**place, "version": 3})
        self.tensor = torch.as_tensor(memory, device="cuda")

    def call(self, name, *args):
        status = getattr(self.driver, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if status:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorName(status, ctypes.byref(text))
            print(f"{name}: {text.value.decode()}", file=sys.stderr, flush=True)

    def wake_up(self):
        self.handle = ctypes.c_uint64()
        access = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 may read and write
        self.call("cuMemCreate", ctypes.byref(self.handle), self.size, self.kind, 0)
        self.call("cuMemMap", self.base, self.size, 0, self.handle, 0)
        self.call("cuMemSetAccess", self.base, self.size, access, 1)

    def sleep(self):
        torch.cuda.synchronize()
        self.call("cuMemUnmap", self.base, self.size)
        self.call("cuMemRelease", self.handle)


def generate():
    tokens = torch.arange(BATCH, device="cuda")
    for step in range(STEPS):
        kv_cache.tensor[:, step] = weights[tokens]
        hidden = kv_cache.tensor[:, : step + 1].mean(1)
        tokens = (hidden @ weights.T).argmax(-1)
    return tokens.tolist()


torch.manual_seed(0)
weights = torch.randn(VOCAB, HIDDEN, device="cuda")
kv_cache = KvCache()
awake = generate()
kv_cache.sleep()

trainer = torch.empty(int(torch.cuda.mem_get_info()[0] * SHARE), dtype=torch.uint8, device="cuda")  # holds on to it
kv_cache.wake_up()
print("wake_up_returned=1", flush=True)
tokens = generate()
print(f"tokens_as_before={sum(a == b for a, b in zip(tokens, awake, strict=True))}")
