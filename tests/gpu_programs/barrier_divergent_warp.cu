// Half a warp reaches a block's barrier.
#include "check.cuh"

__global__ void half_warp_waits(int* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = 1;
        __syncthreads();
    }
}

int main() {
    int* out = allocate<int>(32);
    half_warp_waits<<<1, 32>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
