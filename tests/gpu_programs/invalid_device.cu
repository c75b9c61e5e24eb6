// Chooses a device that is not there.
#include "check.cuh"

int main() { check(cudaSetDevice(4096), "cudaSetDevice"); }
