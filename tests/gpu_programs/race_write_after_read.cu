// A thread overwrites what another warp may still have to read: the barrier between is missing.
#include "check.cuh"

__global__ void rotate(int* out) {
    __shared__ int staged[64];
    staged[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int next = staged[(threadIdx.x + 32) % 64];
    staged[threadIdx.x] = next + 1;
    __syncthreads();
    out[threadIdx.x] = staged[threadIdx.x];
}

int main() {
    int* out = allocate<int>(64);
    rotate<<<1, 64>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
