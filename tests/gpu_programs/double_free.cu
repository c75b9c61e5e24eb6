// Frees a buffer twice, from the host.
#include "check.cuh"

int main() {
    int* buffer = allocate<int>(256);
    check(cudaFree(buffer), "first cudaFree");
    check(cudaFree(buffer), "second cudaFree");
}
