// Writes 4 bytes through a null pointer.
#include "check.cuh"

__global__ void write_null(int* out) { out[threadIdx.x] = 1; }

int main() {
    write_null<<<1, 1>>>(nullptr);
    finish();
}
