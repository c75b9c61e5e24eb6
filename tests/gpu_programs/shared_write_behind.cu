// Writes 4 bytes behind all shared memory of the block.
#include "check.cuh"

__global__ void write_shared_behind(int* out, int index) {
    __shared__ int staged[32];
    staged[index] = index;
    __syncthreads();
    out[threadIdx.x] = staged[threadIdx.x];
}

int main() {
    int* out = allocate<int>(32);
    write_shared_behind<<<1, 1>>>(out, 1 << 14);
    finish();
    check(cudaFree(out), "cudaFree");
}
