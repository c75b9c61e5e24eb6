// Frees a block of the device heap twice, from a kernel.
#include "check.cuh"

__global__ void free_twice() {
    void* block = malloc(64);
    free(block);
    free(block);
}

int main() {
    free_twice<<<1, 1>>>();
    finish();
}
