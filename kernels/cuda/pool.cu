#include "kernels/pool.h"

#include <cmath>

#include "kernels/cuda/columns.cuh"
#include "kernels/functors.h"
#include "kernels/pool_windows.h"

namespace ssn::kernels {
namespace {

// But for global_kernel, a thread owns one pack of channels at one place of what it writes, in every
// gridDim.z-th image: blockIdx.x and threadIdx.y count places, blockIdx.y and threadIdx.x packs, blockIdx.z
// images. Four blocks a multiprocessor are asked for because the compiler would else spill to make room for
// more.

struct Place {
  std::int64_t image;
  int row, col;
  std::int64_t channel, at;  // of the pack: its first channel, and its index in the tensor
};

/// Calls f(Place) for the thread's place in n images of h × w pixels, if it has one.
template <int V, class F>
__device__ void at_place(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, F&& f) {
  const std::int64_t channel = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * V;
  const int pixel = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y), width = static_cast<int>(w);
  if (channel >= c || pixel >= h * w) return;
  for (std::int64_t image = blockIdx.z; image < n; image += gridDim.z)
    f(Place{image, pixel / width, pixel % width, channel, (image * h * w + pixel) * c + channel});
}

template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 4)
    max_pool_kernel(PoolGeometry g, std::int64_t oh, std::int64_t ow, const T* x, T* y,
                    std::int32_t* winner) {
  using W = Wider<T>;
  at_place<V>(g.n, oh, ow, g.c, [&](const Place& p) {
    const WindowRange rows = window(g, 0, g.h, p.row), cols = window(g, 1, g.w, p.col);
    const T* const from = x + p.image * g.h * g.w * g.c + p.channel;
    const std::int64_t first = rows.begin * g.w + cols.begin;
    auto best = Values<W, V>::load(from + first * g.c);
    auto won = Values<std::int32_t, V>::filled(static_cast<std::int32_t>(first));
    for (int ih = rows.begin; ih < rows.end; ++ih)
      for (int iw = cols.begin; iw < cols.end; ++iw) {
        const std::int64_t index = ih * g.w + iw;
        const auto v = Values<W, V>::load(from + index * g.c);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const bool wins = v[i] > best[i] || v[i] != v[i];
          best[i] = wins ? v[i] : best[i];
          won[i] = wins ? static_cast<std::int32_t>(index) : won[i];
        }
      }
    best.store(y + p.at);
    won.store(winner + p.at);
  });
}

template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 4)
    max_pool_gradient_kernel(PoolGeometry g, std::int64_t oh, std::int64_t ow, const T* gy,
                             const std::int32_t* winner, T* gx) {
  using W = Wider<T>;
  at_place<V>(g.n, g.h, g.w, g.c, [&](const Place& p) {
    const WindowRange rows = windows_over(g, 0, oh, p.row), cols = windows_over(g, 1, ow, p.col);
    const std::int32_t index = static_cast<std::int32_t>(p.row * g.w + p.col);
    auto sum = Values<W, V>::filled(0);
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = cols.begin; k < cols.end; ++k) {
        const std::int64_t from = ((p.image * oh + r) * ow + k) * g.c + p.channel;
        const auto v = Values<W, V>::load(gy + from);
        const auto won = Values<std::int32_t, V>::load(winner + from);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += kept_if(won[i] == index, v[i]);
      }
    sum.store(gx + p.at);
  });
}

template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 4)
    avg_pool_kernel(PoolGeometry g, std::int64_t oh, std::int64_t ow, bool count_padding, const T* x, T* y) {
  using W = Wider<T>;
  at_place<V>(g.n, oh, ow, g.c, [&](const Place& p) {
    const WindowRange rows = window(g, 0, g.h, p.row), cols = window(g, 1, g.w, p.col);
    const T* const from = x + p.image * g.h * g.w * g.c + p.channel;
    auto sum = Values<W, V>::filled(0);
    for (int ih = rows.begin; ih < rows.end; ++ih)
      for (int iw = cols.begin; iw < cols.end; ++iw) {
        const auto v = Values<W, V>::load(from + (ih * g.w + iw) * g.c);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += v[i];
      }
    const W share = window_share<W>(g, count_padding, rows, cols);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] *= share;
    sum.store(y + p.at);
  });
}

template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 4)
    avg_pool_gradient_kernel(PoolGeometry g, std::int64_t oh, std::int64_t ow, bool count_padding,
                             const T* gy, T* gx) {
  using W = Wider<T>;
  at_place<V>(g.n, g.h, g.w, g.c, [&](const Place& p) {
    const WindowRange rows = windows_over(g, 0, oh, p.row), cols = windows_over(g, 1, ow, p.col);
    auto sum = Values<W, V>::filled(0);
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = cols.begin; k < cols.end; ++k) {
        const auto v = Values<W, V>::load(gy + ((p.image * oh + r) * ow + k) * g.c + p.channel);
        const W share = window_share<W>(g, count_padding, window(g, 0, g.h, r), window(g, 1, g.w, k));
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] = std::fma(v[i], share, sum[i]);
      }
    sum.store(gx + p.at);
  });
}

/// A block owns an image (and a part of the channels), a thread one pack of channels in every blockDim.y-th
/// pixel.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads, 4)
    global_kernel(std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x, Wider<T>* y) {
  using W = Wider<T>;
  const ColumnThread<V> thread(n * pixels, c, pixels);
  auto sum = Values<W, V>::filled(0);
  thread.each([&](std::int64_t at) {
    const auto v = Values<W, V>::load(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  });
  Values<W, V> mean = column_reduce(sum);
#pragma unroll
  for (int i = 0; i < V; ++i) mean[i] /= static_cast<W>(pixels);
  if (threadIdx.y == 0 && thread.active()) mean.store(y + blockIdx.x * c + thread.column);
}

template <class T, int V, bool kAdd>
__global__ void __launch_bounds__(kColumnThreads, 4)
    global_gradient_kernel(std::int64_t n, std::int64_t pixels, std::int64_t c, const Wider<T>* gy, T* gx) {
  using W = Wider<T>;
  at_place<V>(n, 1, pixels, c, [&](const Place& p) {
    auto v = Values<W, V>::load(gy + p.image * c + p.channel);
    const auto before = kAdd ? Values<W, V>::load(gx + p.at) : Values<W, V>::filled(0);
    const W share = W(1) / static_cast<W>(pixels);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = kAdd ? std::fma(v[i], share, before[i]) : v[i] * share;
    v.store(gx + p.at);
  });
}

/// Blocks for kernels that use at_place.
ColumnLaunch place_launch(std::int64_t n, std::int64_t pixels, std::int64_t packs) {
  ColumnLaunch l(1, packs);
  l.grid.x = blocks_for(pixels, l.block.y);
  l.grid.z = static_cast<unsigned>(n < 65535 ? n : 65535);
  return l;
}

}  // namespace

template <class T>
void max_pool_forward(CudaQueue& q, const PoolGeometry& g, const T* x, T* y, std::int32_t* winner) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  if (g.n * oh * ow * g.c == 0) return;
  with_pack<T>(
      g.c,
      [&](auto v) {
        const ColumnLaunch l = place_launch(g.n, oh * ow, g.c / v.value);
        launch(q, "max_pool_forward", max_pool_kernel<T, v.value>, l.grid, l.block, 0, g, oh, ow, x, y,
               winner);
      },
      x, y, winner);
}

template <class T>
void max_pool_backward(CudaQueue& q, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx) {
  if (g.n * g.h * g.w * g.c == 0) return;
  with_pack<T>(
      g.c,
      [&](auto v) {
        const ColumnLaunch l = place_launch(g.n, g.h * g.w, g.c / v.value);
        launch(q, "max_pool_backward", max_pool_gradient_kernel<T, v.value>, l.grid, l.block, 0, g, g.out_h(),
               g.out_w(), gy, winner, gx);
      },
      gy, winner, gx);
}

template <class T>
void avg_pool_forward(CudaQueue& q, const PoolGeometry& g, bool count_padding, const T* x, T* y) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  if (g.n * oh * ow * g.c == 0) return;
  with_pack<T>(
      g.c,
      [&](auto v) {
        const ColumnLaunch l = place_launch(g.n, oh * ow, g.c / v.value);
        launch(q, "avg_pool_forward", avg_pool_kernel<T, v.value>, l.grid, l.block, 0, g, oh, ow,
               count_padding, x, y);
      },
      x, y);
}

template <class T>
void avg_pool_backward(CudaQueue& q, const PoolGeometry& g, bool count_padding, const T* gy, T* gx) {
  if (g.n * g.h * g.w * g.c == 0) return;
  with_pack<T>(
      g.c,
      [&](auto v) {
        const ColumnLaunch l = place_launch(g.n, g.h * g.w, g.c / v.value);
        launch(q, "avg_pool_backward", avg_pool_gradient_kernel<T, v.value>, l.grid, l.block, 0, g, g.out_h(),
               g.out_w(), count_padding, gy, gx);
      },
      gy, gx);
}

template <class T>
void global_avg_pool_forward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             Wider<T>* y) {
  if (n * c == 0) return;
  with_pack<T>(
      c,
      [&](auto v) {
        const ColumnLaunch l(n, c / v.value);
        launch(q, "global_avg_pool_forward", global_kernel<T, v.value>, l.grid, l.block, 0, n, pixels, c, x,
               y);
      },
      x, y);
}

template <class T>
void global_avg_pool_backward(CudaQueue& q, std::int64_t n, std::int64_t pixels, std::int64_t c,
                              const Wider<T>* gy, T* gx, bool add) {
  if (n * pixels * c == 0) return;
  with_pack<T>(
      c,
      [&](auto v) {
        const ColumnLaunch l = place_launch(n, pixels, c / v.value);
        launch(q, "global_avg_pool_backward",
               add ? global_gradient_kernel<T, v.value, true> : global_gradient_kernel<T, v.value, false>,
               l.grid, l.block, 0, n, pixels, c, gy, gx);
      },
      gy, gx);
}

template void max_pool_forward<bf16>(CudaQueue&, const PoolGeometry&, const bf16*, bf16*, std::int32_t*);
template void max_pool_backward<bf16>(CudaQueue&, const PoolGeometry&, const bf16*, const std::int32_t*,
                                      bf16*);
template void avg_pool_forward<bf16>(CudaQueue&, const PoolGeometry&, bool, const bf16*, bf16*);
template void avg_pool_backward<bf16>(CudaQueue&, const PoolGeometry&, bool, const bf16*, bf16*);
template void global_avg_pool_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                            float*);
template void global_avg_pool_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, bf16*, bool);
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
                                              const float*, float*, bool);
template void global_avg_pool_backward<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                                               const double*, double*, bool);

}  // namespace ssn::kernels
