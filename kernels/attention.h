#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"
#include "runtime/random.h"

namespace ssn::kernels {

// Scaled dot-product attention of several heads (Vaswani et al., 2017, section 3.2). q and y are
// (samples · queries, heads · width), k and v (samples · keys, heads · width); head h has the columns from
// h · width on. With q_i, k_j, v_j a sample's rows of one head:
//   s[i,j] = q_i · k_j / sqrt(width),   p = softmax of s over the first lengths[sample] keys,
//   y_i = Σ_j m[i,j] p[i,j] v_j,   m = 1, or with dropout: 0 with probability `rate`, else 1 / (1 − rate)
// No more than a few rows of s are stored at a time. Inputs, y and their gradients may be bf16; all between
// them, log_sum and workspace are then f32, Wider<T>; on CUDA what enters a product is bf16 again.

struct AttentionShape {
  std::int64_t samples, heads, width, queries, keys;

  constexpr std::int64_t columns() const { return heads * width; }
};
/// Element m[i,j] is drawn by (first + sample, head, i, j): queries <= 2^16, keys <= 2^18.
struct AttentionDropout {
  double rate = 0;
  Random random = {0, 0};
  std::int64_t first = 0;
};

/// Elements of workspace that each of the functions below needs.
template <class T>
std::int64_t attention_workspace(CpuQueue&, const AttentionShape& shape);
template <class T>
std::int64_t attention_workspace(CudaQueue&, const AttentionShape& shape);
/// The widest head on CUDA; on the CPU there is no limit.
template <class T>
constexpr std::int64_t kWidestCudaHead = sizeof(T) == 8 ? 64 : 128;
/// y, and log_sum (samples, heads, queries): log Σ_j exp s[i,j], for the backward pass. lengths (samples) are
/// 1 to keys. Overwrites.
template <class T>
void attention_forward(CpuQueue&, const AttentionShape& shape, const AttentionDropout& dropout, const T* q,
                       const T* k, const T* v, const std::int32_t* lengths, T* y, Wider<T>* log_sum,
                       Wider<T>* workspace);
template <class T>
void attention_forward(CudaQueue&, const AttentionShape& shape, const AttentionDropout& dropout, const T* q,
                       const T* k, const T* v, const std::int32_t* lengths, T* y, Wider<T>* log_sum,
                       Wider<T>* workspace);
/// gq, gk and gv. Overwrites.
template <class T>
void attention_backward(CpuQueue&, const AttentionShape& shape, const AttentionDropout& dropout, const T* q,
                        const T* k, const T* v, const std::int32_t* lengths, const T* y,
                        const Wider<T>* log_sum, const T* gy, T* gq, T* gk, T* gv, Wider<T>* workspace);
template <class T>
void attention_backward(CudaQueue&, const AttentionShape& shape, const AttentionDropout& dropout, const T* q,
                        const T* k, const T* v, const std::int32_t* lengths, const T* y,
                        const Wider<T>* log_sum, const T* gy, T* gq, T* gk, T* gv, Wider<T>* workspace);

}  // namespace ssn::kernels
