// Reads 4 bytes from an odd address.
#include "check.cuh"

__global__ void read_misaligned(const char* bytes, int* out) { *out = *reinterpret_cast<const int*>(bytes + 1); }

int main() {
    char* bytes = allocate<char>(64);
    int* out = allocate<int>(1);
    read_misaligned<<<1, 1>>>(bytes, out);
    finish();
}
