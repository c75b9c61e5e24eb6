# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same allocator, which waits for the GPU before it unmaps a freed tensor.

What to look for: free returns as soon as the kernel's 3 s are over (free_ms=3000), and the sum over the tensor is exact.
"""

import ctypes
import struct
import time
from types import SimpleNamespace

import torch

COUNT = 1 << 19  # float32 ones, 2 MiB: one page of device memory, and a sum that float32 holds exactly
SPIN_MS = 3000  # stands for the kernels in the queue of a busy engine; long against any stall of the host
CUDA = r"""
extern "C" __global__ void spin_then_sum(const float* in, float* out, int count, int spin_ms) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < spin_ms * 1000000ull);
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += ((volatile const float*)in)[i];
    atomicAdd(out, sum);
}
"""


class Pool:
    """Tensors in memory that is mapped when they are made and unmapped when they are freed, nothing cached between."""

    def __init__(self):
        self.driver, granule = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        self.kind = struct.pack("iiiiQQ", 1, 0, 1, 0, 0, 0)  # CUmemAllocationProp: pinned, no export, device 0
        self.call("cuMemGetAllocationGranularity", ctypes.byref(granule), self.kind, 0)
        self.granule, self.live = granule.value, {}

    def call(self, name, *args):
        status = getattr(self.driver, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def empty(self, count):
        base, handle, size = ctypes.c_uint64(), ctypes.c_uint64(), -(-count * 4 // self.granule) * self.granule
        access = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 may read and write
        self.call("cuMemAddressReserve", ctypes.byref(base), size, 0, 0, 0)
        self.call("cuMemCreate", ctypes.byref(handle), size, self.kind, 0)
        self.call("cuMemMap", base, size, 0, handle, 0)
        self.call("cuMemSetAccess", base, size, access, 1)
        self.live[base.value] = size, handle
        place = {"data": (base.value, False), "shape": (count,), "typestr": "<f4", "strides": None, "version": 3}
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=place), device="cuda")

    def free(self, address):
        """What vLLM's allocator does when the last reference to a tensor goes."""
        size, handle = self.live.pop(address)
        torch.cuda.synchronize()
        self.call("cuMemUnmap", address, size)
        self.call("cuMemRelease", handle)


spin_then_sum = torch.cuda._compile_kernel(CUDA, "spin_then_sum")
total = torch.zeros(1, device="cuda")
pool = Pool()
values = pool.empty(COUNT).fill_(1)
torch.cuda.synchronize()

start = time.perf_counter()
spin_then_sum(grid=(1, 1, 1), block=(256, 1, 1), args=[values, total, COUNT, SPIN_MS])
print(f"launch_ms={(time.perf_counter() - start) * 1e3:.2f}")
pool.free(values.data_ptr())
print(f"free_ms={(time.perf_counter() - start) * 1e3:.2f}", flush=True)
print(f"sum_error={abs(total.item() - COUNT):g}")  # total.item() waits for the kernel
