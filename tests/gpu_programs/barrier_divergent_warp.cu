// Half a warp waits at a block's barrier; the other half passes by and goes on.
#include "check.cuh"

__global__ void half_warp_waits(volatile int* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = 1;
        __syncthreads();
    }
    out[threadIdx.x] = out[31 - threadIdx.x] + 1;
}

int main() {
    int* out = allocate<int>(32);
    half_warp_waits<<<1, 32>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
