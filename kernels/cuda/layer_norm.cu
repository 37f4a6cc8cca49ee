#include "kernels/layer_norm.h"

#include "kernels/cuda/columns.cuh"

namespace ssn::kernels {
namespace {

/// Threads of a block that owns a row.
int threads_for(std::int64_t cols) {
  return cols <= kWarp ? kWarp : cols <= 1024 ? 128 : 256;
}

/// Element i of s = x + r; r may be null.
template <class T>
__device__ T summed(const T* x, const T* r, std::int64_t i) {
  return r ? x[i] + r[i] : x[i];
}

/// A block owns a row, a thread every blockDim.x-th column of it.
template <class T>
__global__ void __launch_bounds__(256)
    layer_norm_kernel(std::int64_t cols, double eps, const T* x, const T* r, const T* gain, const T* bias,
                      T* y, T* means, T* rstds) {
  const std::int64_t first = blockIdx.x * cols;
  T sum = 0, squares = 0;
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += summed(x, r, first + c);
  const T mean = block_reduce(sum, Sum(), T(0)) / static_cast<T>(cols);
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const T d = summed(x, r, first + c) - mean;
    squares = std::fma(d, d, squares);
  }
  squares = block_reduce(squares, Sum(), T(0));
  const T rstd = static_cast<T>(1 / sqrt(squares / static_cast<double>(cols) + eps));
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    y[first + c] = std::fma((summed(x, r, first + c) - mean) * rstd, gain[c], bias[c]);
  if (threadIdx.x > 0) return;
  means[blockIdx.x] = mean;
  rstds[blockIdx.x] = rstd;
}

/// parts[chunk] = Σ gy · normalised and Σ gy over the chunk's rows. A block owns a chunk of rows, a thread a
/// column in every blockDim.y-th row of it.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    parameter_gradients_kernel(std::int64_t rows, std::int64_t cols, std::int64_t chunk, const T* x,
                               const T* r, const T* mean, const T* rstd, const T* gy, T* parts) {
  const ColumnThread<1> thread(rows, cols, chunk);
  Pack<T, 1> dot = Pack<T, 1>::filled(0), sum = Pack<T, 1>::filled(0);
  thread.each([&](std::int64_t at) {
    const std::int64_t row = at / cols;
    dot[0] = std::fma(gy[at], (summed(x, r, at) - mean[row]) * rstd[row], dot[0]);
    sum[0] += gy[at];
  });
  dot = column_reduce(dot);
  sum = column_reduce(sum);
  if (threadIdx.y > 0 || !thread.active()) return;
  T* const to = parts + 2 * blockIdx.x * cols + thread.column;
  to[0] = dot[0];
  to[cols] = sum[0];
}

/// A block owns a row, a thread every blockDim.x-th column of it.
template <class T>
__global__ void __launch_bounds__(256)
    input_gradient_kernel(std::int64_t cols, const T* x, const T* r, const T* means, const T* rstds,
                          const T* gain, const T* gy, T* gs) {
  const std::int64_t first = blockIdx.x * cols;
  const T mean = means[blockIdx.x], rstd = rstds[blockIdx.x];
  T sum = 0, dot = 0;
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const T g = gy[first + c] * gain[c];
    sum += g;
    dot = std::fma(g, (summed(x, r, first + c) - mean) * rstd, dot);
  }
  const T g_mean = block_reduce(sum, Sum(), T(0)) / static_cast<T>(cols);
  const T slope = -block_reduce(dot, Sum(), T(0)) / static_cast<T>(cols);
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    const T normal = (summed(x, r, first + c) - mean) * rstd;
    gs[first + c] = rstd * std::fma(normal, slope, gy[first + c] * gain[c] - g_mean);
  }
}

/// A thread owns a column of one of the two sums.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    merge_kernel(std::int64_t cols, std::int64_t chunks, const T* parts, T* ggain, T* gbias) {
  const std::int64_t c = std::int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  T* const to = blockIdx.y == 0 ? ggain : gbias;
  if (c >= cols || !to) return;
  double sum = 0;
  for (std::int64_t k = 0; k < chunks; ++k) sum += parts[(2 * k + blockIdx.y) * cols + c];
  to[c] += static_cast<T>(sum);
}

}  // namespace

template <class T>
void layer_norm_forward(CudaQueue& q, std::int64_t rows, std::int64_t cols, double eps, const T* x,
                        const T* r, const T* gain, const T* bias, T* y, T* mean, T* rstd) {
  if (rows * cols == 0) return;
  launch(q, "layer_norm_forward", layer_norm_kernel<T>, blocks_for(rows, 1), threads_for(cols), 0, cols, eps,
         x, r, gain, bias, y, mean, rstd);
}

template <class T>
void layer_norm_backward(CudaQueue& q, std::int64_t rows, std::int64_t cols, const T* x, const T* r,
                         const T* mean, const T* rstd, const T* gain, const T* gy,
                         const LayerNormGradients<T>& out, T* workspace) {
  if (rows * cols == 0) return;
  const Where where = "layer_norm_backward";
  if (out.ggain || out.gbias) {
    const std::int64_t chunk = chunk_rows(cols), chunks = chunk_count(rows, cols);
    const ColumnLaunch l(chunks, cols);
    launch(q, where, parameter_gradients_kernel<T>, l.grid, l.block, 0, rows, cols, chunk, x, r, mean, rstd,
           gy, workspace);
    launch(q, where, merge_kernel<T>, dim3(blocks_for(cols, kColumnThreads), 2), kColumnThreads, 0, cols,
           chunks, workspace, out.ggain, out.gbias);
  }
  if (!out.gs) return;
  launch(q, where, input_gradient_kernel<T>, blocks_for(rows, 1), threads_for(cols), 0, cols, x, r, mean,
         rstd, gain, gy, out.gs);
}

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
