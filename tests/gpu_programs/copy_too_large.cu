// Asks the runtime to fill 512 bytes of a 256-byte buffer.
#include "check.cuh"

int main() {
    char* buffer = allocate<char>(256);
    check(cudaMemset(buffer, 1, 512), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaFree(buffer), "cudaFree");
}
