#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// A convolution (cross-correlation, zero padding): x (n, h, w, c) channels last, weight (o, c/groups, kh,
/// kw) row-major, y (n, out_h, out_w, o). Pairs are {height, width}.
struct ConvGeometry {
  std::int64_t n, h, w, c;
  std::int64_t o, kh, kw;
  std::int64_t stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
  std::int64_t groups = 1;

  std::int64_t out_h() const { return (h + 2 * padding[0] - dilation[0] * (kh - 1) - 1) / stride[0] + 1; }
  std::int64_t out_w() const { return (w + 2 * padding[1] - dilation[1] * (kw - 1) - 1) / stride[1] + 1; }
  auto operator<=>(const ConvGeometry&) const = default;
};

// f32 and bf16 run in oneDNN, but for depthwise convolutions (cpu/depthwise.h); f64, which oneDNN lacks, by
// im2col and matmul. With x, y and their gradients in bf16 the weight and its gradient are f32, Wider<T>: the
// weight is rounded on its way into oneDNN's layout.
// The window is not larger than the padded input. `workspace` has at least conv_workspace<T>(g) bytes,
// aligned to 64.

/// Whether this machine's convolutions take bf16: oneDNN needs AVX-512 for it, and is fast with AMX.
bool conv_takes_bf16(CpuQueue&);

/// Bytes of workspace that each of the three functions below needs for this geometry and the current number
/// of threads.
template <class T>
std::size_t conv_workspace(CpuQueue&, const ConvGeometry& g);
/// y = conv(x, weight). Overwrites.
template <class T>
void conv_forward(CpuQueue&, const ConvGeometry& g, const T* x, const Wider<T>* weight, T* y,
                  void* workspace);
/// gx from gy. Overwrites.
template <class T>
void conv_backward_data(CpuQueue&, const ConvGeometry& g, const T* gy, const Wider<T>* weight, T* gx,
                        void* workspace);
/// gweight from x and gy. Overwrites.
template <class T>
void conv_backward_weight(CpuQueue&, const ConvGeometry& g, const T* x, const T* gy, Wider<T>* gweight,
                          void* workspace);

}  // namespace ssn::kernels
