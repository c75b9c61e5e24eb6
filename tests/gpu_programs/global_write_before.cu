// Writes 2 bytes just before a 4096-byte buffer.
#include "check.cuh"

__global__ void write_before(short* buffer, long offset) { buffer[offset] = 1; }

int main() {
    short* buffer = allocate<short>(2048);
    write_before<<<1, 1>>>(buffer, -1);
    finish();
    check(cudaFree(buffer), "cudaFree");
}
