#include "kernels/permute.h"

#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns one element of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_channels(std::int64_t n, std::int64_t in, std::int64_t before, std::int64_t out, const T* x, T* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t c = i % out - before;
  y[i] = c >= 0 && c < in ? x[i / out * in + c] : T(0);
}

/// A thread owns one element of gx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cut_channels(std::int64_t n, std::int64_t in, std::int64_t before, std::int64_t out, const T* gy, T* gx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) gx[i] = gy[i / in * out + before + i % in];
}

}  // namespace

template <class T>
void pad_channels_forward(CudaQueue& q, std::int64_t rows, std::int64_t in, std::int64_t before,
                          std::int64_t out, const T* x, T* y) {
  const std::int64_t n = rows * out;
  launch(q, "pad_channels_forward", pad_channels<T>, blocks_for(n, kThreads), kThreads, 0, n, in, before, out,
         x, y);
}

template <class T>
void pad_channels_backward(CudaQueue& q, std::int64_t rows, std::int64_t in, std::int64_t before,
                           std::int64_t out, const T* gy, T* gx) {
  const std::int64_t n = rows * in;
  launch(q, "pad_channels_backward", cut_channels<T>, blocks_for(n, kThreads), kThreads, 0, n, in, before,
         out, gy, gx);
}

template void pad_channels_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                          const float*, float*);
template void pad_channels_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const double*, double*);
template void pad_channels_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                           const float*, float*);
template void pad_channels_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                            std::int64_t, const double*, double*);

}  // namespace ssn::kernels
