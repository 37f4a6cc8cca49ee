#pragma once
#include <cstdint>

#include "kernels/reduce.h"
#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// Layer normalisation (Ba et al., 2016) over the columns of s = x + r, all (rows, cols); r may be null: s =
// x.
//   y[i,c] = (s[i,c] − mean[i]) · rstd[i] · gain[c] + bias[c],   rstd = 1 / sqrt(var + eps), var biased
// x, r, y and their gradients may be bf16: all else is then f32, Wider<T>.

/// y, and mean and rstd (rows) for the backward pass; y may alias x or r. Overwrites.
template <class T>
void layer_norm_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* r,
                        const Wider<T>* gain, const Wider<T>* bias, T* y, Wider<T>* mean, Wider<T>* rstd);
template <class T>
void layer_norm_forward(CudaQueue&, std::int64_t rows, std::int64_t cols, double eps, const T* x, const T* r,
                        const Wider<T>* gain, const Wider<T>* bias, T* y, Wider<T>* mean, Wider<T>* rstd);

/// What a backward pass writes; a null pointer asks for nothing.
template <class T>
struct LayerNormGradients {
  T* gs = nullptr;            // (rows, cols): of x and of r. Overwrites, may alias gy
  Wider<T>* ggain = nullptr;  // adds
  Wider<T>* gbias = nullptr;  // adds
};
/// Elements of workspace that it needs.
constexpr std::int64_t layer_norm_workspace(std::int64_t rows, std::int64_t cols) {
  return 2 * cols * chunk_count(rows, cols);
}
/// Sums over the rows run over fixed chunks of them (reduce.h).
template <class T>
void layer_norm_backward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const T* r,
                         const Wider<T>* mean, const Wider<T>* rstd, const Wider<T>* gain, const T* gy,
                         const LayerNormGradients<T>& out, Wider<T>* workspace);
template <class T>
void layer_norm_backward(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, const T* r,
                         const Wider<T>* mean, const Wider<T>* rstd, const Wider<T>* gain, const T* gy,
                         const LayerNormGradients<T>& out, Wider<T>* workspace);

}  // namespace ssn::kernels
