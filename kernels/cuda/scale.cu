#include "kernels/cuda/columns.cuh"
#include "kernels/scale.h"

namespace ssn::kernels {
namespace {

/// Images that a grid counts, of which a block takes every gridDim.z-th.
unsigned images(std::int64_t n) {
  return static_cast<unsigned>(n < 65535 ? n : 65535);
}

/// A block owns a chunk of the pixels of every gridDim.z-th image, a thread one pack of channels in every
/// blockDim.y-th pixel of it.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    scale_kernel(std::int64_t n, std::int64_t pixels, std::int64_t channels, std::int64_t chunk, const T* x,
                 const Wider<T>* s, T* y) {
  using W = Wider<T>;
  const ColumnThread<V> thread(pixels, channels, chunk);
  if (!thread.active()) return;
  for (std::int64_t image = blockIdx.z; image < n; image += gridDim.z) {
    const auto factor = Values<W, V>::load(s + image * channels + thread.column);
    const std::int64_t first = image * pixels * channels;
    thread.each([&](std::int64_t at) {
      auto v = Values<W, V>::load(x + first + at);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] *= factor[i];
      v.store(y + first + at);
    });
  }
}

/// A block owns an image (and a part of the channels), a thread one pack of channels in every blockDim.y-th
/// pixel.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 2)
    scale_gradient_kernel(std::int64_t rows, std::int64_t channels, std::int64_t pixels, const T* x,
                          const Wider<T>* s, const T* gy, T* gx, Wider<T>* gs) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, channels, pixels);
  const std::int64_t at_s = blockIdx.x * channels + thread.column;
  const auto factor = thread.active() ? Values<W, V>::load(s + at_s) : Values<W, V>::filled(0);
  auto sum = Values<W, V>::filled(0);
  thread.each([&](std::int64_t at) {
    const auto v = Values<W, V>::load(x + at);
    auto g = Values<W, V>::load(gy + at);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum[i] = std::fma(v[i], g[i], sum[i]);
      g[i] *= factor[i];
    }
    g.store(gx + at);
  });
  const Values<W, V> all = column_reduce(sum);
  if (threadIdx.y == 0 && thread.active()) all.store(gs + at_s);
}

}  // namespace

template <class T>
void scale_channels_forward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                            const T* x, const Wider<T>* s, T* y) {
  if (n * pixels * channels == 0) return;
  with_pack<T>(
      channels,
      [&](auto v) {
        ColumnLaunch l(chunk_count(pixels, channels), channels / v.value);
        l.grid.z = images(n);
        launch(q, "scale_channels_forward", scale_kernel<T, v.value>, l.grid, l.block, 0, n, pixels, channels,
               chunk_rows(channels), x, s, y);
      },
      x, s, y);
}

template <class T>
void scale_channels_backward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                             const T* x, const Wider<T>* s, const T* gy, T* gx, Wider<T>* gs) {
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

template void scale_channels_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                           const float*, bf16*);
template void scale_channels_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                            const float*, const bf16*, bf16*, float*);
template void scale_channels_forward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                            const float*, const float*, float*);
template void scale_channels_forward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const double*, const double*, double*);
template void scale_channels_backward<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, const float*, const float*, float*, float*);
template void scale_channels_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const double*, const double*, const double*, double*, double*);

}  // namespace ssn::kernels
