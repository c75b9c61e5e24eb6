// The same fault, 4 bytes just behind a 256-byte buffer, in kernels with every kind of name. Argument: which kind.
#include <cstring>
#include "check.cuh"

enum class Layout { rows, columns };

namespace wkv {
template <typename F>
__global__ void kernel_backward(int count, F const* in, F* out) { out[count] = in[0]; }

namespace detail {
template <int Threads, bool Causal, Layout L, typename F>
__global__ void kernel_values(F* out, int count) { out[count] = F(Threads + Causal + int(L)); }
}  // namespace detail
}  // namespace wkv

namespace {
__global__ void kernel_anonymous(float* out, int count) { out[count] = 1.0f; }
}  // namespace

extern "C" __global__ void kernel_c(float* out, int count) { out[count] = 1.0f; }

template <typename Function>
__global__ void kernel_of_function(Function function, float* out, int count) { out[count] = function(float(count)); }

struct Twice {
    __device__ float operator()(float x) const { return 2 * x; }
};


template <typename... F>
__global__ void kernel_of_pack(float* out, int count, F... values) { out[count] = (float(values) + ...); }

__device__ __noinline__ void store(float* out, int index) { out[index] = 1.0f; }

__global__ void kernel_with_call(float* out, int count) { store(out, count); }

int main(int argc, char** argv) {
    const char* kind = argc > 1 ? argv[1] : "";
    float* out = allocate<float>(64);
    float* in = allocate<float>(64);
    if (!std::strcmp(kind, "template")) wkv::kernel_backward<float><<<1, 1>>>(64, in, out);
    else if (!std::strcmp(kind, "values")) wkv::detail::kernel_values<64, true, Layout::columns, float><<<1, 1>>>(out, 64);
    else if (!std::strcmp(kind, "anonymous")) kernel_anonymous<<<1, 1>>>(out, 64);
    else if (!std::strcmp(kind, "c")) kernel_c<<<1, 1>>>(out, 64);
    else if (!std::strcmp(kind, "function")) kernel_of_function<<<1, 1>>>(Twice{}, out, 64);
    else if (!std::strcmp(kind, "lambda")) kernel_of_function<<<1, 1>>>([] __device__(float x) { return x + 1; }, out, 64);
    else if (!std::strcmp(kind, "pack")) kernel_of_pack<<<1, 1>>>(out, 64, 1, 2.0f, 3.0);
    else if (!std::strcmp(kind, "call")) kernel_with_call<<<1, 1>>>(out, 64);
    else { std::fprintf(stderr, "which kind of name?\n"); return 2; }
    finish();
}
