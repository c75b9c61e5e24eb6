// A kernel gives up.
#include "check.cuh"

__global__ void give_up() { __trap(); }

int main() {
    give_up<<<1, 1>>>();
    finish();
}
