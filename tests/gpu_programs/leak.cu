// Forgets two buffers, of 1,024 and 3,000,000 bytes.
#include "check.cuh"

int main() {
    int* small = allocate<int>(256);
    char* large = allocate<char>(3000000);
    std::printf("kept=%d\n", int(small != nullptr) + int(large != nullptr));
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
