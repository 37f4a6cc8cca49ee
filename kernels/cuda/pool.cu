#include "kernels/pool.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/pool_windows.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// The place (image, row, column, channel) of element i of an (n, rows, cols, channels) tensor.
struct Place {
  std::int64_t image, row, col, channel;

  __device__ Place(std::int64_t i, std::int64_t rows, std::int64_t cols, std::int64_t channels)
      : image(i / channels / cols / rows),
        row(i / channels / cols % rows),
        col(i / channels % cols),
        channel(i % channels) {}
};

/// A thread owns one element of y; neighbouring threads read neighbouring channels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool(PoolGeometry g, std::int64_t oh, std::int64_t ow, const T* x, T* y, std::int32_t* winner) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.n * oh * ow * g.c) return;
  const Place at(i, oh, ow, g.c);
  const PoolRange rows = window(g, 0, g.h, at.row), cols = window(g, 1, g.w, at.col);
  const T* image = x + at.image * g.h * g.w * g.c + at.channel;
  std::int64_t won = rows.begin * g.w + cols.begin;
  T best = image[won * g.c];
  for (std::int64_t ih = rows.begin; ih < rows.end; ++ih)
    for (std::int64_t iw = cols.begin; iw < cols.end; ++iw) {
      const T v = image[(ih * g.w + iw) * g.c];
      if (v > best || (v != v && best == best)) best = v, won = ih * g.w + iw;
    }
  y[i] = best;
  winner[i] = static_cast<std::int32_t>(won);
}

/// A thread owns one element of gx and gathers from the windows over it, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_gradient(PoolGeometry g, std::int64_t oh, std::int64_t ow, const T* gy,
                      const std::int32_t* winner, T* gx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.n * g.h * g.w * g.c) return;
  const Place at(i, g.h, g.w, g.c);
  const PoolRange rows = windows_over(g, 0, oh, at.row), cols = windows_over(g, 1, ow, at.col);
  T sum = 0;
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    for (std::int64_t c = cols.begin; c < cols.end; ++c) {
      const std::int64_t out = ((at.image * oh + r) * ow + c) * g.c + at.channel;
      if (winner[out] == at.row * g.w + at.col) sum += gy[out];
    }
  gx[i] = sum;
}

/// A thread owns one element of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool(PoolGeometry g, std::int64_t oh, std::int64_t ow, bool count_padding, const T* x, T* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.n * oh * ow * g.c) return;
  const Place at(i, oh, ow, g.c);
  const PoolRange rows = window(g, 0, g.h, at.row), cols = window(g, 1, g.w, at.col);
  const T* image = x + at.image * g.h * g.w * g.c + at.channel;
  T sum = 0;
  for (std::int64_t ih = rows.begin; ih < rows.end; ++ih)
    for (std::int64_t iw = cols.begin; iw < cols.end; ++iw) sum += image[(ih * g.w + iw) * g.c];
  y[i] = sum * share_of<T>(g, count_padding, rows, cols);
}

/// A thread owns one element of gx and gathers from the windows over it, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    avg_pool_gradient(PoolGeometry g, std::int64_t oh, std::int64_t ow, bool count_padding, const T* gy,
                      T* gx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= g.n * g.h * g.w * g.c) return;
  const Place at(i, g.h, g.w, g.c);
  const PoolRange rows = windows_over(g, 0, oh, at.row), cols = windows_over(g, 1, ow, at.col);
  T sum = 0;
  for (std::int64_t r = rows.begin; r < rows.end; ++r)
    for (std::int64_t c = cols.begin; c < cols.end; ++c)
      sum = fma(gy[((at.image * oh + r) * ow + c) * g.c + at.channel],
                share_of<T>(g, count_padding, window(g, 0, g.h, r), window(g, 1, g.w, c)), sum);
  gx[i] = sum;
}

/// A thread owns one element of y (n, c).
template <class T>
__global__ void __launch_bounds__(kThreads)
    global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x, T* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n * c) return;
  const T* from = x + i / c * pixels * c + i % c;
  T sum = 0;
  for (std::int64_t p = 0; p < pixels; ++p) sum += from[p * c];
  y[i] = sum / static_cast<T>(pixels);
}

/// A thread owns one element of gx (n, pixels, c).
template <class T>
__global__ void __launch_bounds__(kThreads)
    global_avg_pool_gradient(std::int64_t n, std::int64_t pixels, std::int64_t c, const T* gy, T* gx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n * pixels * c) gx[i] = gy[i / c / pixels * c + i % c] / static_cast<T>(pixels);
}

}  // namespace

template <class T>
void max_pool_forward(CudaQueue& q, const PoolGeometry& g, const T* x, T* y, std::int32_t* winner) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  launch(q, "max_pool_forward", max_pool<T>, blocks_for(g.n * oh * ow * g.c, kThreads), kThreads, 0, g, oh,
         ow, x, y, winner);
}
template <class T>
void max_pool_backward(CudaQueue& q, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx) {
  launch(q, "max_pool_backward", max_pool_gradient<T>, blocks_for(g.n * g.h * g.w * g.c, kThreads), kThreads,
         0, g, g.out_h(), g.out_w(), gy, winner, gx);
}
template <class T>
void avg_pool_forward(CudaQueue& q, const PoolGeometry& g, bool count_padding, const T* x, T* y) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  launch(q, "avg_pool_forward", avg_pool<T>, blocks_for(g.n * oh * ow * g.c, kThreads), kThreads, 0, g, oh,
         ow, count_padding, x, y);
}
template <class T>
void avg_pool_backward(CudaQueue& q, const PoolGeometry& g, bool count_padding, const T* gy, T* gx) {
  launch(q, "avg_pool_backward", avg_pool_gradient<T>, blocks_for(g.n * g.h * g.w * g.c, kThreads), kThreads,
         0, g, g.out_h(), g.out_w(), count_padding, gy, gx);
}
template <class T>
void global_avg_pool_forward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             T* y) {
  launch(q, "global_avg_pool_forward", global_avg_pool<T>, blocks_for(n * c, kThreads), kThreads, 0, n,
         pixels, c, x, y);
}
template <class T>
void global_avg_pool_backward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* gy,
                              T* gx) {
  launch(q, "global_avg_pool_backward", global_avg_pool_gradient<T>, blocks_for(n * pixels * c, kThreads),
         kThreads, 0, n, pixels, c, gy, gx);
}

template void max_pool_forward<float>(CudaQueue&, const PoolGeometry&, const float*, float*, std::int32_t*);
template void max_pool_forward<double>(CudaQueue&, const PoolGeometry&, const double*, double*,
                                       std::int32_t*);
template void max_pool_backward<float>(CudaQueue&, const PoolGeometry&, const float*, const std::int32_t*,
                                       float*);
template void max_pool_backward<double>(CudaQueue&, const PoolGeometry&, const double*, const std::int32_t*,
                                        double*);
template void avg_pool_forward<float>(CudaQueue&, const PoolGeometry&, bool, const float*, float*);
template void avg_pool_forward<double>(CudaQueue&, const PoolGeometry&, bool, const double*, double*);
template void avg_pool_backward<float>(CudaQueue&, const PoolGeometry&, bool, const float*, float*);
template void avg_pool_backward<double>(CudaQueue&, const PoolGeometry&, bool, const double*, double*);
template void global_avg_pool_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, float*);
template void global_avg_pool_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const double*, double*);
template void global_avg_pool_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const float*, float*);
template void global_avg_pool_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                               const double*, double*);

}  // namespace ssn::kernels
