// Two blocks of 64 threads each write one element behind a buffer: more findings than the tool prints.
#include "check.cuh"

__global__ void write_behind_many(int* buffer, int count) { buffer[count + blockIdx.x * blockDim.x + threadIdx.x] = 1; }

int main() {
    int* buffer = allocate<int>(1000);
    write_behind_many<<<2, 64>>>(buffer, 1000);
    finish();
    check(cudaFree(buffer), "cudaFree");
}
