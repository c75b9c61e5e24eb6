// Writes 4 bytes behind an array in the thread's local memory. Argument: the index.
#include "check.cuh"

__global__ void write_local_behind(int* out, int index) {
    volatile int scratch[16];
    for (int i = 0; i < 16; ++i) scratch[i] = i;
    scratch[index] = index;
    out[threadIdx.x] = scratch[threadIdx.x];
}

int main(int argc, char** argv) {
    int* out = allocate<int>(32);
    write_local_behind<<<1, 1>>>(out, argc > 1 ? std::atoi(argv[1]) : 16);
    finish();
    check(cudaFree(out), "cudaFree");
}
