#pragma once
#include <cstdint>

#include "runtime/queue.h"

namespace ssn::kernels {

/// y[r,c] = x[r, c − before] where 0 <= c − before < in, else 0; x is (rows, in), y (rows, out). Overwrites.
template <class T>
void pad_channels_forward(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                          std::int64_t out, const T* x, T* y);
template <class T>
void pad_channels_forward(CudaQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                          std::int64_t out, const T* x, T* y);
/// gx[r,c] = gy[r, c + before]. Overwrites.
template <class T>
void pad_channels_backward(CpuQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                           std::int64_t out, const T* gy, T* gx);
template <class T>
void pad_channels_backward(CudaQueue&, std::int64_t rows, std::int64_t in, std::int64_t before,
                           std::int64_t out, const T* gy, T* gx);

}  // namespace ssn::kernels
