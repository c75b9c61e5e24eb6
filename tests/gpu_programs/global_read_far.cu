// Reads 8 bytes a tebibyte behind its buffer: nothing is mapped there, so the device faults without any tool.
#include "check.cuh"

__global__ void read_far(const double* in, double* out, size_t distance) { *out = in[distance]; }

int main() {
    double* in = allocate<double>(512);
    double* out = allocate<double>(1);
    read_far<<<1, 1>>>(in, out, size_t(1) << 37);
    finish();
}
