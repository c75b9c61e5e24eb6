# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""Two trainer ranks share a rollout engine that sleeps; only rank 0 wakes it, and rank 1 does not wait for that.

What to look for: the engine serves calls in the order of their arrival. Rank 1's generate arrives first, finds the
weights unmapped (asleep_when_served=1), and "an illegal memory access was encountered" comes out of the copy of the
tokens to the host. With CUDA_LAUNCH_BLOCKING=1 it comes out of the embedding look-up, the first to touch the weights.
"""

import ctypes
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from math import prod
from types import SimpleNamespace

import torch

BATCH, VOCAB, HIDDEN, STEPS = 256, 4096, 256, 4  # any will do: what matters is that the weights are not there
LATE_S = 5  # rank 0 comes when rank 1 has asked; where rank 1 waits for it, after these seconds


class SleepyMemory:
    """Device memory that can lose and regain its physical pages at an unchanged address, as in vLLM's sleep mode."""

    def __init__(self, *shape):
        self.driver, self.base, self.handle, granule = ctypes.CDLL("libcuda.so.1"), *(ctypes.c_uint64() for _ in "123")
        self.kind = struct.pack("iiiiQQ", 1, 0, 1, 0, 0, 0)  # CUmemAllocationProp: pinned, no export, device 0
        self.call("cuMemGetAllocationGranularity", ctypes.byref(granule), self.kind, 0)
        self.size = -(-prod(shape) * 4 // granule.value) * granule.value
        self.call("cuMemAddressReserve", ctypes.byref(self.base), self.size, 0, 0, 0)
        self.map()
        place = {"data": (self.base.value, False), "shape": shape, "typestr": "<f4", "strides": None, "version": 3}
        self.tensor = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=place), device="cuda")

    def call(self, name, *args):
        status = getattr(self.driver, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def map(self):
        access = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 may read and write
        self.call("cuMemCreate", ctypes.byref(self.handle), self.size, self.kind, 0)
        self.call("cuMemMap", self.base, self.size, 0, self.handle, 0)
        self.call("cuMemSetAccess", self.base, self.size, access, 1)

    def unmap(self):
        self.call("cuMemUnmap", self.base, self.size)
        self.call("cuMemRelease", self.handle)


class Engine:
    def __init__(self):
        self.weights, self.kv_cache = SleepyMemory(VOCAB, HIDDEN), SleepyMemory(BATCH, STEPS, HIDDEN)
        self.weights.tensor.copy_(torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(0)))
        self.asleep = False

    def sleep(self):
        """Level 1: weights to the host, key/value cache thrown away."""
        torch.cuda.synchronize()
        self.backup = self.weights.tensor.cpu()
        self.weights.unmap()
        self.kv_cache.unmap()
        self.asleep = True

    def wake_up(self):
        self.weights.map()
        self.kv_cache.map()
        self.weights.tensor.copy_(self.backup)
        self.asleep = False

    def generate(self):
        weights, kv_cache = self.weights.tensor, self.kv_cache.tensor
        tokens = torch.arange(BATCH, device="cuda")
        for step in range(STEPS):
            kv_cache[:, step] = weights[tokens]
            hidden = kv_cache[:, : step + 1].mean(1)
            tokens = (hidden @ weights.T).argmax(-1)
        return tokens.tolist()

    def serve(self):
        print(f"asleep_when_served={int(self.asleep)}", flush=True)
        return self.generate()


def rank_0():
    asked.wait(LATE_S)  # the ranks do not arrive together: rank 0 also writes logs and checkpoints
    actor.submit(engine.wake_up).result()


def rank_1():
    answer = actor.submit(engine.serve)
    asked.set()
    return answer.result()


# One thread and a queue, like a Ray actor. The ranks' collectives need no GPU here: a rank is a thread.
actor = ThreadPoolExecutor(1, initializer=lambda: torch.zeros(1, device="cuda"))
engine = actor.submit(Engine).result()
awake = actor.submit(engine.generate).result()
actor.submit(engine.sleep).result()
ranks, asked = ThreadPoolExecutor(2), threading.Event()
waking, generating = ranks.submit(rank_0), ranks.submit(rank_1)
tokens = generating.result()
waking.result()
print(f"tokens_as_before={sum(a == b for a, b in zip(tokens, awake, strict=True))}")
