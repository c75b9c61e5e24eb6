// One warp of two, and half of the other, wait at a block's barrier; the rest passes by and goes on.
#include "check.cuh"

__global__ void most_of_a_block_waits(volatile int* out, int count) {
    for (int i = threadIdx.x; i < count; i += 64) {
        out[i] = i;
        __syncthreads();
    }
    out[threadIdx.x] = out[63 - threadIdx.x] + 1;
}

int main() {
    int* out = allocate<int>(128);
    most_of_a_block_waits<<<1, 64>>>(out, 112);
    finish();
    check(cudaFree(out), "cudaFree");
}
