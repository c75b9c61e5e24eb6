// An assertion on the device does not hold.
#include <cassert>
#include "check.cuh"

__global__ void look_up(const int* indices, int count) { assert(indices[threadIdx.x] < count); }

int main() {
    int* indices = allocate<int>(4);
    look_up<<<1, 4>>>(indices, 0);
    finish();
}
