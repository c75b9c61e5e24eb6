// Copies bytes to the host that nobody wrote.
#include "check.cuh"

int main() {
    int* buffer = nullptr;
    int host[64];
    check(cudaMalloc(&buffer, 1024), "cudaMalloc");
    check(cudaMemcpy(host, buffer, sizeof host, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaFree(buffer), "cudaFree");
}
