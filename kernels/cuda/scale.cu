#include "kernels/cuda/columns.cuh"
#include "kernels/scale.h"

namespace ssn::kernels {
namespace {

/// A thread owns one pack of channels in every blockDim.y-th pixel of a chunk of all images' pixels.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    scale_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, std::int64_t pixels,
                 const T* x, const T* s, T* y) {
  const ColumnThread<V> thread(rows, channels, chunk);
  thread.each_row([&](std::int64_t row) {
    Pack<T, V> v = Pack<T, V>::load(x + thread.at(row));
    const Pack<T, V> factor = Pack<T, V>::load(s + row / pixels * channels + thread.column);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] *= factor[i];
    v.store(y + thread.at(row));
  });
}

/// A block owns an image (and a part of the channels), a thread one pack of channels in every blockDim.y-th
/// pixel.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 2)
    scale_gradient_kernel(std::int64_t rows, std::int64_t channels, std::int64_t pixels, const T* x,
                          const T* s, const T* gy, T* gx, T* gs) {
  const ColumnThread<V> thread(rows, channels, pixels);
  const std::int64_t at_s = blockIdx.x * channels + thread.column;
  const Pack<T, V> factor = thread.active() ? Pack<T, V>::load(s + at_s) : Pack<T, V>::filled(0);
  Pack<T, V> sum = Pack<T, V>::filled(0);
  thread.each([&](std::int64_t at) {
    const Pack<T, V> v = Pack<T, V>::load(x + at);
    Pack<T, V> g = Pack<T, V>::load(gy + at);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum[i] = std::fma(v[i], g[i], sum[i]);
      g[i] *= factor[i];
    }
    g.store(gx + at);
  });
  const Pack<T, V> all = column_reduce(sum);
  if (threadIdx.y == 0 && thread.active()) all.store(gs + at_s);
}

}  // namespace

template <class T>
void scale_channels_forward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                            const T* x, const T* s, T* y) {
  const std::int64_t rows = n * pixels;
  if (rows * channels == 0) return;
  with_pack<T>(
      channels,
      [&](auto v) {
        const ColumnLaunch l(chunk_count(rows, channels), channels / v.value);
        launch(q, "scale_channels_forward", scale_kernel<T, v.value>, l.grid, l.block, 0, rows, channels,
               chunk_rows(channels), pixels, x, s, y);
      },
      x, s, y);
}

template <class T>
void scale_channels_backward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                             const T* x, const T* s, const T* gy, T* gx, T* gs) {
  if (n * channels == 0) return;
  with_pack<T>(
      channels,
      [&](auto v) {
        const ColumnLaunch l(n, channels / v.value);
        launch(q, "scale_channels_backward", scale_gradient_kernel<T, v.value>, l.grid, l.block, 0,
               n * pixels, channels, pixels, x, s, gy, gx, gs);
      },
      x, s, gy, gx, gs);
}

template void scale_channels_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                            const float*, const float*, float*);
template void scale_channels_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const double*, const double*, double*);
template void scale_channels_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, const float*, const float*, float*, float*);
template void scale_channels_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const double*, const double*, const double*, double*, double*);

}  // namespace ssn::kernels
