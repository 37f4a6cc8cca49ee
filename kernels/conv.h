#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/weight_format.h"
#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// A convolution (cross-correlation, zero padding): x (n, h, w, c) channels last, weight (o, c/groups, kh,
/// kw) or (o, kh, kw, c/groups), y (n, out_h, out_w, o). Pairs are {height, width}.
struct ConvGeometry {
  std::int64_t n, h, w, c;
  std::int64_t o, kh, kw;
  std::int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  std::int64_t groups = 1;

  std::int64_t out_h() const { return (h + 2 * padding[0] - dilation[0] * (kh - 1) - 1) / stride[0] + 1; }
  std::int64_t out_w() const { return (w + 2 * padding[1] - dilation[1] * (kw - 1) - 1) / stride[1] + 1; }
  /// Elements of the three tensors.
  std::int64_t x_size() const { return n * h * w * c; }
  std::int64_t y_size() const { return n * out_h() * out_w() * o; }
  std::int64_t weight_size() const { return o * (c / groups) * kh * kw; }
  /// Nothing to add up: every output is zero or has no elements.
  bool is_empty() const { return x_size() == 0 || o == 0; }
  /// Every channel has a filter of its own.
  bool is_depthwise() const { return groups == c && groups == o; }
  /// For messages.
  std::string text() const;
  auto operator<=>(const ConvGeometry&) const = default;
};

// The weight is of the format that conv_weight_format<T>(g) says; its gradient is so too, but always of
// Wider<T>. What is added up is so in f32. The window is not larger than the padded input. `workspace` has at
// least conv_workspace<T>(g) bytes, aligned to 64, on a GPU to 256.
//
// On the CPU, f32 and bf16 run in oneDNN, but for depthwise convolutions (cpu/depthwise.h); f64, which oneDNN
// lacks, by im2col and matmul. On a GPU, f32 and bf16 run in cuDNN (cuda/cudnn_plan.h), but for depthwise
// convolutions (cuda/depthwise.h); f64, which only tests need, and what cuDNN has no way for, by simple loops
// (cuda/direct_conv.h). There a bf16 gradient of the weight is rounded to bf16 on its way: cuDNN's is.

/// Whether convolutions take bf16 here: oneDNN needs AVX-512 for it, and is fast with AMX; cuDNN and cuBLASLt
/// need compute capability 8.0.
bool conv_takes_bf16(CpuQueue&);
bool conv_takes_bf16(CudaQueue&);

/// Plain where we or oneDNN lay the weight out for ourselves; where cuDNN reads it, as cuDNN wants it, of the
/// type of x. A function of the weight's sizes, the groups and T alone.
template <class T>
WeightFormat conv_weight_format(CpuQueue&, const ConvGeometry& g);
template <class T>
WeightFormat conv_weight_format(CudaQueue&, const ConvGeometry& g);

enum class ConvPass { forward, data, weight };

/// Bytes of workspace that a pass, one of the three functions below, needs for this geometry and, on the CPU,
/// the current number of threads.
template <class T>
std::size_t conv_workspace(CpuQueue&, const ConvGeometry& g, ConvPass pass);
template <class T>
std::size_t conv_workspace(CudaQueue&, const ConvGeometry& g, ConvPass pass);
/// y = conv(x, weight). Overwrites.
template <class T>
void conv_forward(CpuQueue&, const ConvGeometry& g, const T* x, const void* weight, T* y, void* workspace);
template <class T>
void conv_forward(CudaQueue&, const ConvGeometry& g, const T* x, const void* weight, T* y, void* workspace);
/// gx from gy. Overwrites.
template <class T>
void conv_backward_data(CpuQueue&, const ConvGeometry& g, const T* gy, const void* weight, T* gx,
                        void* workspace);
template <class T>
void conv_backward_data(CudaQueue&, const ConvGeometry& g, const T* gy, const void* weight, T* gx,
                        void* workspace);
/// gweight from x and gy. Overwrites.
template <class T>
void conv_backward_weight(CpuQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace);
template <class T>
void conv_backward_weight(CudaQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace);

}  // namespace ssn::kernels
