# /// script
# requires-python = ">=3.11"
# dependencies = ["torch==2.11.0", "triton==3.6.0", "numpy==2.3.5"]
# ///
"""The same with a barrier between the two reductions.

What to look for: racecheck finds nothing, and no row is wrong (wrong_rows=0), although one warp still comes late.
"""

import torch

ROWS, WIDTH = 512, 1024  # a block for each row, a thread for each value
LATE_NS = 20_000  # one warp of 32 sleeps so long after the barrier; left to itself an H100 is never late enough
CUDA = r"""
template <bool MAX> __device__ float block_reduce(float value, float* part) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 16; step; step /= 2) {
        float other = __shfl_xor_sync(~0u, value, step);
        value = MAX ? fmaxf(value, other) : value + other;
    }
    if (!lane) part[warp] = value;
    __syncthreads();
    if (warp == 31) __nanosleep(LATE_NS);
    value = part[lane];  // 32 warps, so a part for each lane
    for (int step = 16; step; step /= 2) {
        float other = __shfl_xor_sync(~0u, value, step);
        value = MAX ? fmaxf(value, other) : value + other;
    }
    return value;
}
extern "C" __global__ void softmax(const float* in, float* out) {
    __shared__ float part[32];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float peak = block_reduce<true>(in[at], part);
    __syncthreads();
    float value = __expf(in[at] - peak);
    out[at] = value / block_reduce<false>(value, part);
}
"""

softmax = torch.cuda._compile_kernel(CUDA.replace("LATE_NS", str(LATE_NS)), "softmax")
x = torch.randn(ROWS, WIDTH, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
out = torch.empty_like(x)
softmax(grid=(ROWS, 1, 1), block=(WIDTH, 1, 1), args=[x, out])
right = x.double().softmax(1)
print(f"wrong_rows={((out - right).abs() > 1e-4 * right).any(1).sum().item()}")
