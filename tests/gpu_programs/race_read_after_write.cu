// A thread reads what another warp may not have written yet: the barrier between is missing.
#include "check.cuh"

__global__ void reverse(int* out) {
    __shared__ int staged[64];
    staged[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = staged[63 - threadIdx.x];
}

int main() {
    int* out = allocate<int>(64);
    reverse<<<1, 64>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
