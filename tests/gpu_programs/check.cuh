// What every program here does with a status: print its name and text, exit 1.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

inline void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s: %s\n", what, cudaGetErrorName(status), cudaGetErrorString(status));
    std::exit(1);
}

template <typename T>
T* allocate(size_t count) {
    T* buffer = nullptr;
    check(cudaMalloc(&buffer, count * sizeof(T)), "cudaMalloc");
    check(cudaMemset(buffer, 0, count * sizeof(T)), "cudaMemset");
    return buffer;
}

inline void finish() {
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::printf("finished=1\n");
}
