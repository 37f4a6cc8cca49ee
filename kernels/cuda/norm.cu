#include "kernels/norm.h"

#include <numeric>

#include "kernels/cuda/columns.cuh"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

/// What normalise() needs, for a thread's columns.
template <class T, int V>
struct Channels {
  Values<T, V> mean, scale, bias;

  __device__ Channels(std::int64_t column, T eps, const T* m, const T* var, const T* gain, const T* b)
      : mean(Values<T, V>::load(m + column)),
        scale(Values<T, V>::load(gain + column)),
        bias(Values<T, V>::load(b + column)) {
    const auto v = Values<T, V>::load(var + column);
#pragma unroll
    for (int i = 0; i < V; ++i) scale[i] /= sqrt(v[i] + eps);
  }
};

// In the first four kernels a block owns a chunk of rows (and a part of the channels), a thread one pack of
// channels in every blockDim.y-th row of it.

/// parts[chunk] = the chunk's mean and Σ (x − mean)² of each channel. The second pass finds the chunk in
/// cache.
template <class T, int V>
__global__ void __launch_bounds__(kColumnThreads)
    chunk_statistics_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, const T* x,
                            Wider<T>* parts) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, channels, chunk);
  auto sum = Values<W, V>::filled(0), squares = Values<W, V>::filled(0);
  thread.each([&](std::int64_t at) {
    const auto v = Values<W, V>::load(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  });
  Values<W, V> mean = column_reduce(sum);
#pragma unroll
  for (int i = 0; i < V; ++i) mean[i] /= static_cast<W>(thread.end - thread.begin);
  thread.each([&](std::int64_t at) {
    const auto v = Values<W, V>::load(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) squares[i] = std::fma(v[i] - mean[i], v[i] - mean[i], squares[i]);
  });
  const Values<W, V> total = column_reduce(squares);
  if (threadIdx.y > 0 || !thread.active()) return;
  W* const to = parts + 2 * blockIdx.x * channels + thread.column;
  mean.store(to);
  total.store(to + channels);
}

template <class T, int V, Activation kActivation>
__global__ void __launch_bounds__(kColumnThreads)
    normalise_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, Wider<T> eps, const T* x,
                     const Wider<T>* mean, const Wider<T>* var, const Wider<T>* gain, const Wider<T>* bias,
                     T* y, std::int64_t stride) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, channels, chunk);
  if (!thread.active()) return;
  const Channels<W, V> c(thread.column, eps, mean, var, gain, bias);
  thread.each_row([&](std::int64_t row) {
    auto v = Values<W, V>::load(x + thread.at(row));
#pragma unroll
    for (int i = 0; i < V; ++i)
      v[i] = activate<kActivation>(normalise(v[i], c.mean[i], c.scale[i], c.bias[i]));
    v.store(y + row * stride + thread.column);
  });
}

/// parts[chunk] = the chunk's Σ gz and Σ gz (x − mean) of each channel, gz being the gradient before the
/// activation.
template <class T, int V, Activation kActivation>
__global__ void __launch_bounds__(kColumnThreads)
    chunk_gradients_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, Wider<T> eps,
                           const T* x, const Wider<T>* mean, const Wider<T>* var, const Wider<T>* gain,
                           const Wider<T>* bias, const T* gy, std::int64_t stride, Wider<T>* parts) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, channels, chunk);
  auto sum = Values<W, V>::filled(0), dot = Values<W, V>::filled(0);
  if (thread.active()) {
    const Channels<W, V> c(thread.column, eps, mean, var, gain, bias);
    thread.each_row([&](std::int64_t row) {
      const auto v = Values<W, V>::load(x + thread.at(row));
      const auto g = Values<W, V>::load(gy + row * stride + thread.column);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const W z = normalise(v[i], c.mean[i], c.scale[i], c.bias[i]);
        const W gz = activation_gradient<kActivation>(z, g[i]);
        sum[i] += gz;
        dot[i] = std::fma(gz, v[i] - c.mean[i], dot[i]);
      }
    });
  }
  const Values<W, V> all = column_reduce(sum);
  const Values<W, V> all_dot = column_reduce(dot);
  if (threadIdx.y > 0 || !thread.active()) return;
  W* const to = parts + 2 * blockIdx.x * channels + thread.column;
  all.store(to);
  all_dot.store(to + channels);
}

/// gx, from each channel's gz_mean and slope (see normalise_gradient).
template <class T, int V, Activation kActivation, bool kAdd>
__global__ void __launch_bounds__(kColumnThreads, 2)
    input_gradient_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, Wider<T> eps,
                          const T* x, const Wider<T>* mean, const Wider<T>* var, const Wider<T>* gain,
                          const Wider<T>* bias, const T* gy, std::int64_t stride, const Wider<T>* gz_mean,
                          const Wider<T>* slope, T* gx) {
  using W = Wider<T>;
  const ColumnThread<V> thread(rows, channels, chunk);
  if (!thread.active()) return;
  const Channels<W, V> c(thread.column, eps, mean, var, gain, bias);
  const auto gz_means = Values<W, V>::load(gz_mean + thread.column);
  const auto slopes = Values<W, V>::load(slope + thread.column);
  thread.each_row([&](std::int64_t row) {
    const std::int64_t at = thread.at(row);
    const auto v = Values<W, V>::load(x + at);
    const auto g = Values<W, V>::load(gy + row * stride + thread.column);
    auto out = kAdd ? Values<W, V>::load(gx + at) : Values<W, V>::filled(0);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const W z = normalise(v[i], c.mean[i], c.scale[i], c.bias[i]);
      const W gz = activation_gradient<kActivation>(z, g[i]);
      const W result = normalise_gradient(gz, gz_means[i], v[i] - c.mean[i], slopes[i], c.scale[i]);
      out[i] = kAdd ? out[i] + result : result;
    }
    out.store(gx + at);
  });
}

// In the merging kernels a block owns kWarp channels; warp w of its kMergeWarps takes the chunks w,
// w + kMergeWarps, ... of each.

/// f(chunk, address of its first part of the channel) for the thread's chunks.
template <class T, class F>
__device__ void each_part(std::int64_t chunks, std::int64_t channels, std::int64_t c, const T* parts, F&& f) {
  if (c >= channels) return;
  for (std::int64_t k = threadIdx.x / kWarp; k < chunks; k += kMergeWarps) f(k, parts + 2 * k * channels + c);
}

template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_statistics_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunk, std::int64_t chunks,
                            const T* parts, T* mean, T* var) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  const auto rows_of = [&](std::int64_t k) {
    return static_cast<double>(k + 1 < chunks ? chunk : rows - k * chunk);
  };
  double sum = 0, squares = 0;
  each_part(chunks, channels, c, parts, [&](std::int64_t k, const T* part) { sum += rows_of(k) * *part; });
  const double m = sum_over_warps(sum) / static_cast<double>(rows);
  each_part(chunks, channels, c, parts, [&](std::int64_t k, const T* part) {
    const double d = *part - m;
    squares += part[channels] + rows_of(k) * d * d;
  });
  const double all = sum_over_warps(squares);
  if (threadIdx.x >= kWarp || c >= channels) return;
  mean[c] = static_cast<T>(m);
  var[c] = static_cast<T>(all / static_cast<double>(rows));
}

/// Adds to ggain and gbias (where not null), and writes gz_mean and slope.
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_gradients_kernel(std::int64_t rows, std::int64_t channels, std::int64_t chunks, double eps,
                           bool batch_statistics, const T* parts, const T* var, T* ggain, T* gbias,
                           T* gz_mean, T* slope) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  double sum = 0, dot = 0;
  each_part(chunks, channels, c, parts, [&](std::int64_t, const T* part) {
    sum += part[0];
    dot += part[channels];
  });
  sum = sum_over_warps(sum);
  dot = sum_over_warps(dot);
  if (threadIdx.x >= kWarp || c >= channels) return;
  const double n = static_cast<double>(rows), power = var[c] + eps;
  if (ggain) ggain[c] += static_cast<T>(dot / sqrt(power));
  if (gbias) gbias[c] += static_cast<T>(sum);
  gz_mean[c] = batch_statistics ? static_cast<T>(sum / n) : T(0);
  slope[c] = batch_statistics ? static_cast<T>(-dot / power / n) : T(0);
}

/// A thread owns a channel.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    update_kernel(std::int64_t channels, double momentum, double unbiased, const T* mean, const T* var,
                  T* running_mean, T* running_var) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  if (c >= channels) return;
  running_mean[c] = static_cast<T>((1 - momentum) * running_mean[c] + momentum * mean[c]);
  running_var[c] = static_cast<T>((1 - momentum) * running_var[c] + momentum * unbiased * var[c]);
}

}  // namespace

template <class T>
void batch_norm_statistics(CudaQueue& q, std::int64_t rows, std::int64_t channels, const T* x, Wider<T>* mean,
                           Wider<T>* var, Wider<T>* workspace) {
  if (channels == 0) return;
  const Where where = "batch_norm_statistics";
  const std::int64_t chunk = chunk_rows(channels), chunks = chunk_count(rows, channels);
  with_pack<T>(
      channels,
      [&](auto v) {
        const ColumnLaunch l(chunks, channels / v.value);
        launch(q, where, chunk_statistics_kernel<T, v.value>, l.grid, l.block, 0, rows, channels, chunk, x,
               workspace);
      },
      x, workspace);
  launch(q, where, merge_statistics_kernel<Wider<T>>, blocks_for(channels, kWarp), kMergeThreads, 0, rows,
         channels, chunk, chunks, workspace, mean, var);
}

template <class T>
void batch_norm_update(CudaQueue& q, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var) {
  if (channels == 0) return;
  const double n = static_cast<double>(rows), unbiased = rows > 1 ? n / (n - 1) : 1;
  launch(q, "batch_norm_update", update_kernel<T>, blocks_for(channels, kColumnThreads), kColumnThreads, 0,
         channels, momentum, unbiased, mean, var, running_mean, running_var);
}

template <class T>
void batch_norm_forward(CudaQueue& q, std::int64_t rows, std::int64_t channels, double eps,
                        Activation activation, const T* x, const Wider<T>* mean, const Wider<T>* var,
                        const Wider<T>* gain, const Wider<T>* bias, T* y, std::int64_t stride) {
  if (rows * channels == 0) return;
  const auto run = [&](auto v, auto act) {
    const ColumnLaunch l(chunk_count(rows, channels), channels / v.value);
    launch(q, "batch_norm_forward", normalise_kernel<T, v.value, act.value>, l.grid, l.block, 0, rows,
           channels, chunk_rows(channels), eps, x, mean, var, gain, bias, y, stride);
  };
  with_pack<T>(
      std::gcd(channels, stride),
      [&](auto v) { with_activation(activation, [&](auto act) { run(v, act); }); }, x, mean, var, gain, bias,
      y);
}

template <class T>
void batch_norm_backward(CudaQueue& q, std::int64_t rows, std::int64_t channels, double eps,
                         Activation activation, bool batch_statistics, const T* x, const Wider<T>* mean,
                         const Wider<T>* var, const Wider<T>* gain, const Wider<T>* bias, const T* gy,
                         std::int64_t stride, const NormGradients<T>& out, Wider<T>* workspace) {
  if (rows * channels == 0) return;
  const Where where = "batch_norm_backward";
  const std::int64_t chunk = chunk_rows(channels), chunks = chunk_count(rows, channels);
  Wider<T>* const gz_mean = workspace + 2 * chunks * channels;
  Wider<T>* const slope = gz_mean + channels;
  const auto run = [&](auto v, auto act) {
    const ColumnLaunch l(chunks, channels / v.value);
    launch(q, where, chunk_gradients_kernel<T, v.value, act.value>, l.grid, l.block, 0, rows, channels, chunk,
           eps, x, mean, var, gain, bias, gy, stride, workspace);
    launch(q, where, merge_gradients_kernel<Wider<T>>, blocks_for(channels, kWarp), kMergeThreads, 0, rows,
           channels, chunks, eps, batch_statistics, workspace, var, out.ggain, out.gbias, gz_mean, slope);
    if (!out.gx) return;
    launch(q, where,
           out.add_gx ? input_gradient_kernel<T, v.value, act.value, true>
                      : input_gradient_kernel<T, v.value, act.value, false>,
           l.grid, l.block, 0, rows, channels, chunk, eps, x, mean, var, gain, bias, gy, stride, gz_mean,
           slope, out.gx);
  };
  with_pack<T>(
      std::gcd(channels, stride),
      [&](auto v) { with_activation(activation, [&](auto act) { run(v, act); }); }, x, mean, var, gain, bias,
      gy, workspace, out.gx);
}

template void batch_norm_statistics<bf16>(CudaQueue&, std::int64_t, std::int64_t, const bf16*, float*, float*,
                                          float*);
template void batch_norm_forward<bf16>(CudaQueue&, std::int64_t, std::int64_t, double, Activation,
                                       const bf16*, const float*, const float*, const float*, const float*,
                                       bf16*, std::int64_t);
template void batch_norm_backward<bf16>(CudaQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                        const bf16*, const float*, const float*, const float*, const float*,
                                        const bf16*, std::int64_t, const NormGradients<bf16>&, float*);
template void batch_norm_statistics<float>(CudaQueue&, std::int64_t, std::int64_t, const float*, float*,
                                           float*, float*);
template void batch_norm_statistics<double>(CudaQueue&, std::int64_t, std::int64_t, const double*, double*,
                                            double*, double*);
template void batch_norm_update<float>(CudaQueue&, std::int64_t, std::int64_t, double, const float*,
                                       const float*, float*, float*);
template void batch_norm_update<double>(CudaQueue&, std::int64_t, std::int64_t, double, const double*,
                                        const double*, double*, double*);
template void batch_norm_forward<float>(CudaQueue&, std::int64_t, std::int64_t, double, Activation,
                                        const float*, const float*, const float*, const float*, const float*,
                                        float*, std::int64_t);
template void batch_norm_forward<double>(CudaQueue&, std::int64_t, std::int64_t, double, Activation,
                                         const double*, const double*, const double*, const double*,
                                         const double*, double*, std::int64_t);
template void batch_norm_backward<float>(CudaQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                         const float*, const float*, const float*, const float*, const float*,
                                         const float*, std::int64_t, const NormGradients<float>&, float*);
template void batch_norm_backward<double>(CudaQueue&, std::int64_t, std::int64_t, double, Activation, bool,
                                          const double*, const double*, const double*, const double*,
                                          const double*, const double*, std::int64_t,
                                          const NormGradients<double>&, double*);

}  // namespace ssn::kernels
