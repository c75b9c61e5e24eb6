// Recurses deeper than the thread's stack. Ends by itself where nothing stops it.
#include "check.cuh"

__device__ __noinline__ int descend(int depth, int* out) {
    volatile int frame[64];
    frame[depth % 64] = depth;
    if (depth == 0) return frame[0];
    return descend(depth - 1, out) + frame[depth % 64] + *out;
}

__global__ void recurse(int* out, int depth) { *out = descend(depth, out); }

int main() {
    int* out = allocate<int>(1);
    recurse<<<1, 1>>>(out, 10000);
    finish();
}
