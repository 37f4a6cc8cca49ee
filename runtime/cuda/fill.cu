#include <cstring>

#include "runtime/cuda/launch.cuh"
#include "runtime/device_memory.h"

namespace ssn::memory {
namespace {

constexpr int kThreads = 256;

/// A thread owns one element.
template <class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(std::int64_t n, T value, T* to) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) to[i] = value;
}

template <class T>
void fill_with(CudaQueue& q, void* data, const void* value, std::int64_t count) {
  T v;
  std::memcpy(&v, value, sizeof v);
  launch(q, "fill", fill_kernel<T>, blocks_for(count, kThreads), kThreads, 0, count, v,
         static_cast<T*>(data));
}

}  // namespace

void fill(CudaQueue& q, void* data, const void* value, std::size_t bytes, std::int64_t count) {
  if (count == 0) return;
  switch (bytes) {
    case 1: return fill_with<std::uint8_t>(q, data, value, count);
    case 2: return fill_with<std::uint16_t>(q, data, value, count);
    case 4: return fill_with<std::uint32_t>(q, data, value, count);
    default: return fill_with<std::uint64_t>(q, data, value, count);
  }
}

}  // namespace ssn::memory
