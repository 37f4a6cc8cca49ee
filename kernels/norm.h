#pragma once
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/reduce.h"
#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Batch normalisation over the rows of x (rows, channels), channels last, with an activation behind it:
//   z = (x − mean) · rstd · gain + bias,   y = activation(z),   rstd = 1 / sqrt(var + eps)
// The rows of y and gy may be part of longer ones: `stride` elements lie between them.
// x, y and their gradients may be bf16: all else is then f32, Wider<T>.
// Sums run over fixed chunks of rows, added in their order: the same bits on any number of threads.

/// Elements of workspace that each of the functions below needs.
constexpr std::int64_t batch_norm_workspace(std::int64_t rows, std::int64_t channels) {
  return 2 * channels * (chunk_count(rows, channels) + 1);
}

/// mean[c] and var[c] (biased: divided by rows) of x: chunk by chunk in two passes, then over the chunks.
/// rows >= 1. Overwrites.
template <class T>
void batch_norm_statistics(CpuQueue&, std::int64_t rows, std::int64_t channels, const T* x, Wider<T>* mean,
                           Wider<T>* var, Wider<T>* workspace);
template <class T>
void batch_norm_statistics(CudaQueue&, std::int64_t rows, std::int64_t channels, const T* x, Wider<T>* mean,
                           Wider<T>* var, Wider<T>* workspace);

/// running = (1 − momentum) · running + momentum · batch; the variance unbiased (times rows / (rows − 1);
/// biased for one row).
template <class T>
void batch_norm_update(CpuQueue&, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var);
template <class T>
void batch_norm_update(CudaQueue&, std::int64_t rows, std::int64_t channels, double momentum, const T* mean,
                       const T* var, T* running_mean, T* running_var);

/// y from x and the statistics given (the batch's, or the running ones). y may alias x if its rows are as
/// long. Overwrites.
template <class T>
void batch_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, Activation,
                        const T* x, const Wider<T>* mean, const Wider<T>* var, const Wider<T>* gain,
                        const Wider<T>* bias, T* y, std::int64_t stride);
template <class T>
void batch_norm_forward(CudaQueue&, std::int64_t rows, std::int64_t channels, double eps, Activation,
                        const T* x, const Wider<T>* mean, const Wider<T>* var, const Wider<T>* gain,
                        const Wider<T>* bias, T* y, std::int64_t stride);

/// What a backward pass writes; a null pointer asks for nothing.
template <class T>
struct NormGradients {
  T* gx = nullptr;            // (rows, channels); may alias gy unless add_gx or its rows are longer
  bool add_gx = false;        // gx +=, else overwrites
  Wider<T>* ggain = nullptr;  // adds
  Wider<T>* gbias = nullptr;  // adds
};

/// z is computed again from x, so that neither it nor y need be kept. `batch_statistics`: mean and var came
/// from x itself and carry gradient; else they are constants.
template <class T>
void batch_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t channels, double eps, Activation,
                         bool batch_statistics, const T* x, const Wider<T>* mean, const Wider<T>* var,
                         const Wider<T>* gain, const Wider<T>* bias, const T* gy, std::int64_t stride,
                         const NormGradients<T>& out, Wider<T>* workspace);
template <class T>
void batch_norm_backward(CudaQueue&, std::int64_t rows, std::int64_t channels, double eps, Activation,
                         bool batch_statistics, const T* x, const Wider<T>* mean, const Wider<T>* var,
                         const Wider<T>* gain, const Wider<T>* bias, const T* gy, std::int64_t stride,
                         const NormGradients<T>& out, Wider<T>* workspace);

}  // namespace ssn::kernels
