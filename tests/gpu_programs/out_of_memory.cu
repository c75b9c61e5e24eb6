// Asks for a pebibyte.
#include "check.cuh"

int main() { allocate<char>(size_t(1) << 50); }
