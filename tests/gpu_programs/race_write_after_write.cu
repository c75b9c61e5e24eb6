// All threads write the same shared variable.
#include "check.cuh"

__global__ void last_writer(int* out) {
    __shared__ int winner;
    winner = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) *out = winner;
}

int main() {
    int* out = allocate<int>(1);
    last_writer<<<1, 64>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
