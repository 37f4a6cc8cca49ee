#pragma once
#include <cstdint>

#include "kernels/reduce.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Batch normalisation over the rows of x (rows, channels), channels last; optionally with ReLU behind it:
//   z = (x − mean) · rstd · gain + bias,   y = relu ? max(z, 0) : z,   rstd = 1 / sqrt(var + eps)
// Sums run over fixed chunks of rows, added in their order: the same bits on any number of threads.

/// Elements of workspace that each of the functions below needs.
constexpr std::int64_t batch_norm_workspace(std::int64_t rows, std::int64_t channels) {
  return 2 * channels * (chunk_count(rows, channels) + 1);
}

/// mean[c] and var[c] (biased: divided by rows) of x: chunk by chunk in two passes, then over the chunks.
/// rows >= 1. Overwrites.
template <class T>
void batch_norm_statistics(CpuQueue&, std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* var,
                           T* workspace);
template <class T>
void batch_norm_statistics(CudaQueue&, std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* var,
                           T* workspace);

/// running = (1 − momentum) · running + momentum · batch; the variance unbiased (times rows / (rows − 1);
/// biased for one row).
template <class T>
void batch_norm_update(CpuQueue&, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var);
template <class T>
void batch_norm_update(CudaQueue&, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var);

/// y from x and the statistics given (the batch's, or the running ones). y may alias x. Overwrites.
template <class T>
void batch_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                        const T* x, const T* mean, const T* var, const T* gain, const T* bias, T* y);
template <class T>
void batch_norm_forward(CudaQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                        const T* x, const T* mean, const T* var, const T* gain, const T* bias, T* y);

/// What a backward pass writes; a null pointer asks for nothing.
template <class T>
struct NormGradients {
  T* gx = nullptr;      // (rows, channels); may alias gy unless add_gx
  bool add_gx = false;  // gx +=, else overwrites
  T* ggain = nullptr;   // adds
  T* gbias = nullptr;   // adds
};

/// Where the ReLU cut is recomputed from x, so that y need not be kept. `batch_statistics`: mean and var came
/// from x itself and carry gradient; else they are constants.
template <class T>
void batch_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                         bool batch_statistics, const T* x, const T* mean, const T* var, const T* gain,
                         const T* bias, const T* gy, const NormGradients<T>& out, T* workspace);
template <class T>
void batch_norm_backward(CudaQueue&, std::int64_t rows, std::int64_t channels, double eps, bool relu,
                         bool batch_statistics, const T* x, const T* mean, const T* var, const T* gain,
                         const T* bias, const T* gy, const NormGradients<T>& out, T* workspace);

}  // namespace ssn::kernels
