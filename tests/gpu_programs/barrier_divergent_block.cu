// One warp of two reaches a block's barrier; the other returns early.
#include "check.cuh"

__global__ void one_warp_waits(int* out) {
    if (threadIdx.x >= 32) return;
    out[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] += 1;
}

int main() {
    int* out = allocate<int>(64);
    one_warp_waits<<<1, 64>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
