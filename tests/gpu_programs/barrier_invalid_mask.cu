// Threads wait at a warp's barrier with a mask that does not name them.
#include "check.cuh"

__global__ void wait_unnamed(int* out, unsigned mask) {
    out[threadIdx.x] = 1;
    __syncwarp(mask);
    out[threadIdx.x] += 1;
}

int main() {
    int* out = allocate<int>(32);
    wait_unnamed<<<1, 32>>>(out, 0x0000ffffu);
    finish();
    check(cudaFree(out), "cudaFree");
}
