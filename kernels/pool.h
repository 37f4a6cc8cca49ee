#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// All serve bf16, with sums in f32.

/// Pooling windows over x (n, h, w, c), channels last; y is (n, out_h, out_w, c). Pairs are {height, width}.
/// Padding is at most half the kernel, so that every window has an element of x. h · w <= 2³⁰; kernel and
/// stride
/// <= 2²⁹.
struct PoolGeometry {
  std::int64_t n, h, w, c;
  std::int64_t kernel[2], stride[2], padding[2] = {0, 0};

  std::int64_t out_h() const { return (h + 2 * padding[0] - kernel[0]) / stride[0] + 1; }
  std::int64_t out_w() const { return (w + 2 * padding[1] - kernel[1]) / stride[1] + 1; }
};

/// y = the largest of the window (padding never wins; a NaN does); winner = its index ih · w + iw within the
/// image, the first of equals. Overwrites.
template <class T>
void max_pool_forward(CpuQueue&, const PoolGeometry& g, const T* x, T* y, std::int32_t* winner);
template <class T>
void max_pool_forward(CudaQueue&, const PoolGeometry& g, const T* x, T* y, std::int32_t* winner);
/// gx = sum of gy over the windows that the element won, in their order. Overwrites.
template <class T>
void max_pool_backward(CpuQueue&, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx);
template <class T>
void max_pool_backward(CudaQueue&, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx);

/// y = mean of the window; the divisor is the kernel's area (count_padding) or the number of elements inside
/// x. Overwrites.
template <class T>
void avg_pool_forward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* x, T* y);
template <class T>
void avg_pool_forward(CudaQueue&, const PoolGeometry& g, bool count_padding, const T* x, T* y);
/// Overwrites gx.
template <class T>
void avg_pool_backward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* gy, T* gx);
template <class T>
void avg_pool_backward(CudaQueue&, const PoolGeometry& g, bool count_padding, const T* gy, T* gx);

/// y[n,c] = mean over the `pixels` of x (n, pixels, c). Overwrites. y and gy are Wider<T>.
template <class T>
void global_avg_pool_forward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             Wider<T>* y);
template <class T>
void global_avg_pool_forward(CudaQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             Wider<T>* y);
/// Overwrites gx, or adds to it.
template <class T>
void global_avg_pool_backward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c,
                              const Wider<T>* gy, T* gx, bool add);
template <class T>
void global_avg_pool_backward(CudaQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c,
                              const Wider<T>* gy, T* gx, bool add);

}  // namespace ssn::kernels
