// Writes 4 bytes just behind a 256-byte buffer.
#include "check.cuh"

__global__ void write_behind(float* buffer, int count) { buffer[count] = 1.0f; }

int main() {
    float* buffer = allocate<float>(64);
    write_behind<<<1, 1>>>(buffer, 64);
    finish();
    check(cudaFree(buffer), "cudaFree");
}
