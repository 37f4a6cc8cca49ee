#include "kernels/layer_norm.h"

#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

/// Threads of a block that owns a row of so many packs.
int threads_for(std::int64_t packs) {
  return packs <= kWarp ? kWarp : packs <= 512 ? 128 : 256;
}

/// A pack of s = x + r; r may be null.
template <int V, class T>
__device__ Values<Wider<T>, V> summed(const T* x, const T* r, std::int64_t at) {
  auto s = Values<Wider<T>, V>::load(x + at);
  if (r) {
    const auto other = Values<Wider<T>, V>::load(r + at);
#pragma unroll
    for (int i = 0; i < V; ++i) s[i] += other[i];
  }
  return s;
}

/// f(column of a pack) for the thread's packs of a row that its block owns.
template <int V, class F>
__device__ void each_pack(std::int64_t cols, F&& f) {
  for (std::int64_t c = threadIdx.x * V; c < cols; c += blockDim.x * V) f(c);
}

/// A block owns a row, a thread every blockDim.x-th pack of it. The second and third pass find it in cache.
template <class T, int V>
__global__ void __launch_bounds__(256)
    layer_norm_kernel(std::int64_t cols, double eps, const T* x, const T* r, const Wider<T>* gain,
                      const Wider<T>* bias, T* y, Wider<T>* means, Wider<T>* rstds) {
  using W = Wider<T>;
  const std::int64_t first = blockIdx.x * cols;
  W sum = 0, squares = 0;
  each_pack<V>(cols, [&](std::int64_t c) {
    const auto s = summed<V>(x, r, first + c);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += s[i];
  });
  const W mean = block_reduce(sum, Sum(), W(0)) / static_cast<W>(cols);
  each_pack<V>(cols, [&](std::int64_t c) {
    const auto s = summed<V>(x, r, first + c);
#pragma unroll
    for (int i = 0; i < V; ++i) squares = std::fma(s[i] - mean, s[i] - mean, squares);
  });
  squares = block_reduce(squares, Sum(), W(0));
  const W rstd = static_cast<W>(1 / sqrt(squares / static_cast<double>(cols) + eps));
  each_pack<V>(cols, [&](std::int64_t c) {
    auto s = summed<V>(x, r, first + c);
    const auto g = Values<W, V>::load(gain + c), b = Values<W, V>::load(bias + c);
#pragma unroll
    for (int i = 0; i < V; ++i) s[i] = std::fma((s[i] - mean) * rstd, g[i], b[i]);
    s.store(y + first + c);
  });
  if (threadIdx.x > 0) return;
  means[blockIdx.x] = mean;
  rstds[blockIdx.x] = rstd;
}

/// parts[chunk] = Σ gy · normalised and Σ gy over the chunk's rows. A block owns a chunk of rows (and a part
/// of the columns), a thread one pack of columns in every blockDim.y-th row of it.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    parameter_gradients_kernel(std::int64_t rows, std::int64_t cols, std::int64_t chunk, const T* x,
                               const T* r, const Wider<T>* mean, const Wider<T>* rstd, const T* gy,
                               Wider<T>* parts) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, cols, chunk);
  auto dot = Values<W, V>::filled(0), sum = Values<W, V>::filled(0);
  thread.each_row([&](std::int64_t row) {
    const auto s = summed<V>(x, r, thread.at(row));
    const auto g = Values<W, V>::load(gy + thread.at(row));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      dot[i] = std::fma(g[i], (s[i] - mean[row]) * rstd[row], dot[i]);
      sum[i] += g[i];
    }
  });
  dot = column_reduce(dot);
  sum = column_reduce(sum);
  if (threadIdx.y > 0 || !thread.active()) return;
  W* const to = parts + 2 * blockIdx.x * cols + thread.column;
  dot.store(to);
  sum.store(to + cols);
}

/// A block owns a row, a thread every blockDim.x-th pack of it.
template <class T, int V>
__global__ void __launch_bounds__(256)
    input_gradient_kernel(std::int64_t cols, const T* x, const T* r, const Wider<T>* means,
                          const Wider<T>* rstds, const Wider<T>* gain, const T* gy, T* gs) {
  using W = Wider<T>;
  const std::int64_t first = blockIdx.x * cols;
  const W mean = means[blockIdx.x], rstd = rstds[blockIdx.x];
  W sum = 0, dot = 0;
  const auto each = [&](auto&& f) {  // f(column, gradients of the normalised values, these)
    each_pack<V>(cols, [&](std::int64_t c) {
      auto g = Values<W, V>::load(gy + first + c), s = summed<V>(x, r, first + c);
      const auto gains = Values<W, V>::load(gain + c);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        g[i] *= gains[i];
        s[i] = (s[i] - mean) * rstd;
      }
      f(c, g, s);
    });
  };
  each([&](std::int64_t, const Values<W, V>& g, const Values<W, V>& normal) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum += g[i];
      dot = std::fma(g[i], normal[i], dot);
    }
  });
  const W g_mean = block_reduce(sum, Sum(), W(0)) / static_cast<W>(cols);
  const W slope = -block_reduce(dot, Sum(), W(0)) / static_cast<W>(cols);
  each([&](std::int64_t c, Values<W, V>& g, const Values<W, V>& normal) {
#pragma unroll
    for (int i = 0; i < V; ++i) g[i] = rstd * std::fma(normal[i], slope, g[i] - g_mean);
    g.store(gs + first + c);
  });
}

/// A block owns kWarp columns of one of the two sums, warp w of it the chunks w, w + kMergeWarps, ...
template <class W>
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(std::int64_t cols, std::int64_t chunks, const W* parts, W* ggain, W* gbias) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  W* const to = blockIdx.y == 0 ? ggain : gbias;
  if (!to) return;
  double sum = 0;
  for (std::int64_t k = threadIdx.x / kWarp; c < cols && k < chunks; k += kMergeWarps)
    sum += parts[(2 * k + blockIdx.y) * cols + c];
  sum = sum_over_warps(sum);
  if (threadIdx.x < kWarp && c < cols) to[c] += static_cast<W>(sum);
}

}  // namespace

template <class T>
void layer_norm_forward(CudaQueue& q, std::int64_t rows, std::int64_t cols, double eps, const T* x,
                        const T* r, const Wider<T>* gain, const Wider<T>* bias, T* y, Wider<T>* mean,
                        Wider<T>* rstd) {
  if (rows * cols == 0) return;
  with_pack<T>(
      cols,
      [&](auto v) {
        launch(q, "layer_norm_forward", layer_norm_kernel<T, v.value>, blocks_for(rows, 1),
               threads_for(cols / v.value), 0, cols, eps, x, r, gain, bias, y, mean, rstd);
      },
      x, r, gain, bias, y);
}

template <class T>
void layer_norm_backward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const T* r,
                         const Wider<T>* mean, const Wider<T>* rstd, const Wider<T>* gain, const T* gy,
                         const LayerNormGradients<T>& out, Wider<T>* workspace) {
  if (rows * cols == 0) return;
  const Where where = "layer_norm_backward";
  const auto run = [&](auto v) {
    if (out.ggain || out.gbias) {
      const std::int64_t chunk = chunk_rows(cols), chunks = chunk_count(rows, cols);
      const ColumnLaunch l(chunks, cols / v.value);
      launch(q, where, parameter_gradients_kernel<T, v.value>, l.grid, l.block, 0, rows, cols, chunk, x, r,
             mean, rstd, gy, workspace);
      launch(q, where, merge_kernel<Wider<T>>, dim3(blocks_for(cols, kWarp), 2), kMergeThreads, 0, cols,
             chunks, workspace, out.ggain, out.gbias);
    }
    if (!out.gs) return;
    launch(q, where, input_gradient_kernel<T, v.value>, blocks_for(rows, 1), threads_for(cols / v.value), 0,
           cols, x, r, mean, rstd, gain, gy, out.gs);
  };
  with_pack<T>(cols, run, x, r, gain, gy, out.gs, workspace);
}

template void layer_norm_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, double, const bf16*,
                                       const bf16*, const float*, const float*, bf16*, float*, float*);
template void layer_norm_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, const bf16*,
                                        const float*, const float*, const float*, const bf16*,
                                        const LayerNormGradients<bf16>&, float*);
template void layer_norm_forward<float>(CudaQueue&, std::int64_t, std::int64_t, double, const float*,
                                        const float*, const float*, const float*, float*, float*, float*);
template void layer_norm_forward<double>(CudaQueue&, std::int64_t, std::int64_t, double, const double*,
                                         const double*, const double*, const double*, double*, double*,
                                         double*);
template void layer_norm_backward<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, const float*,
                                         const float*, const float*, const float*, const float*,
                                         const LayerNormGradients<float>&, float*);
template void layer_norm_backward<double>(CudaQueue&, std::int64_t, std::int64_t, const double*,
                                          const double*, const double*, const double*, const double*,
                                          const double*, const LayerNormGradients<double>&, double*);

}  // namespace ssn::kernels
