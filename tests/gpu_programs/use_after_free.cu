// Reads 4 bytes of a buffer that was freed.
#include "check.cuh"

__global__ void read_freed(const int* freed, int* out) { *out = freed[2]; }

int main() {
    int* out = allocate<int>(1);
    int* freed = allocate<int>(1 << 20);
    check(cudaFree(freed), "cudaFree");
    read_freed<<<1, 1>>>(freed, out);
    finish();
}
