// Launches that the runtime refuses. Argument: which.
#include <cstring>
#include "check.cuh"

__global__ void nothing(int* out) { if (out) *out = 1; }

__global__ void __launch_bounds__(128) bounded(int* out) { if (out) *out = 1; }

int main(int argc, char** argv) {
    const char* which = argc > 1 ? argv[1] : "";
    if (!std::strcmp(which, "block")) nothing<<<1, 2048>>>(nullptr);
    else if (!std::strcmp(which, "grid")) nothing<<<dim3(1, 70000), 1>>>(nullptr);
    else if (!std::strcmp(which, "empty")) nothing<<<0, 32>>>(nullptr);
    else if (!std::strcmp(which, "shared")) nothing<<<1, 32, 1 << 20>>>(nullptr);
    else if (!std::strcmp(which, "bounds")) bounded<<<1, 256>>>(nullptr);
    else { std::fprintf(stderr, "which launch?\n"); return 2; }
    finish();
}
