// Built for another architecture than the device's, and without code that could be compiled for it.
#include "check.cuh"

__global__ void nothing() {}

int main() {
    nothing<<<1, 1>>>();
    finish();
}
