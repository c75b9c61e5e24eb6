// No fault: what each tool says when there is nothing to say.
#include "check.cuh"

__global__ void fill(int* out) {
    __shared__ int staged[32];
    staged[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = staged[31 - threadIdx.x];
}

int main() {
    int* out = allocate<int>(32);
    fill<<<1, 32>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
