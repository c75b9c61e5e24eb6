// Reads 4 bytes that nobody wrote.
#include "check.cuh"

__global__ void read_uninitialized(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

int main() {
    int* in = nullptr;
    check(cudaMalloc(&in, 1024), "cudaMalloc");
    int* out = allocate<int>(2);
    read_uninitialized<<<1, 2>>>(in, out);
    finish();
    check(cudaFree(in), "cudaFree");
    check(cudaFree(out), "cudaFree");
}
