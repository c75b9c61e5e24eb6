// Forgets a block of the device heap.
#include "check.cuh"

__global__ void forget(void** out) { *out = malloc(48); }

int main() {
    void** out = allocate<void*>(1);
    forget<<<1, 1>>>(out);
    finish();
    check(cudaFree(out), "cudaFree");
}
