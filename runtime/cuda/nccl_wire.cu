#include "runtime/cuda/nccl_wire.h"

#include "runtime/cuda/launch.cuh"

namespace ssn {
namespace {

constexpr int kThreads = 256, kElements = 8;  // of a thread, `kThreads` apart

/// A block owns kThreads * kElements elements.
template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert(std::int64_t n, const From* x, To* y) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kElements) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    const std::int64_t i = first + k * kThreads;
    if (i < n) store(y[i], x[i]);
  }
}

template <class From, class To>
void convert_all(CudaQueue& q, std::int64_t n, const From* x, To* y) {
  launch(q, "sum over ranks", convert<From, To>, blocks_for(n, kThreads * kElements), kThreads, 0, n, x, y);
}

}  // namespace

void narrow(CudaQueue& q, std::int64_t n, const float* x, bf16* y) {
  convert_all(q, n, x, y);
}

void widen(CudaQueue& q, std::int64_t n, const bf16* x, float* y) {
  convert_all(q, n, x, y);
}

}  // namespace ssn
