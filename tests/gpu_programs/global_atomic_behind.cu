// Adds atomically 4 bytes behind a 128-byte buffer.
#include "check.cuh"

__global__ void count_behind(unsigned* counters, int count) { atomicAdd(&counters[count], 1u); }

int main() {
    unsigned* counters = allocate<unsigned>(32);
    count_behind<<<1, 2>>>(counters, 33);
    finish();
    check(cudaFree(counters), "cudaFree");
}
