// Writes 4 bytes behind the thread's local memory.
#include "check.cuh"

__global__ void write_local_behind(int* out, int index) {
    volatile int scratch[16];
    for (int i = 0; i < 16; ++i) scratch[i] = i;
    scratch[index] = index;
    out[threadIdx.x] = scratch[threadIdx.x];
}

int main() {
    int* out = allocate<int>(32);
    write_local_behind<<<1, 1>>>(out, 1 << 21);
    finish();
    check(cudaFree(out), "cudaFree");
}
