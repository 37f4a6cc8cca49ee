#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

// All serve bf16 but sigmoid and silu; a bias is then f32. All pointers have n elements. Outputs
// overwrite, and may alias inputs of the same index.

/// y += x
template <class T>
void accumulate(CpuQueue&, std::int64_t n, const T* x, T* y);
template <class T>
void accumulate(CudaQueue&, std::int64_t n, const T* x, T* y);

/// y = x in another type: between f32 and bf16, rounded to the nearest.
template <class From, class To>
void convert(CpuQueue&, std::int64_t n, const From* x, To* y);
template <class From, class To>
void convert(CudaQueue&, std::int64_t n, const From* x, To* y);

/// y = a + b
template <class T>
void add_forward(CpuQueue&, std::int64_t n, const T* a, const T* b, T* y);
template <class T>
void add_forward(CudaQueue&, std::int64_t n, const T* a, const T* b, T* y);

/// y = max(a + b, 0); its gradient is relu_backward's.
template <class T>
void add_relu_forward(CpuQueue&, std::int64_t n, const T* a, const T* b, T* y);
template <class T>
void add_relu_forward(CudaQueue&, std::int64_t n, const T* a, const T* b, T* y);

/// y = max(x, 0); a NaN stays a NaN.
template <class T>
void relu_forward(CpuQueue&, std::int64_t n, const T* x, T* y);
template <class T>
void relu_forward(CudaQueue&, std::int64_t n, const T* x, T* y);
/// gx = gy where y > 0, else 0; y is the forward's output.
template <class T>
void relu_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx);
template <class T>
void relu_backward(CudaQueue&, std::int64_t n, const T* y, const T* gy, T* gx);

/// y = tanh(x)
template <class T>
void tanh_forward(CpuQueue&, std::int64_t n, const T* x, T* y);
template <class T>
void tanh_forward(CudaQueue&, std::int64_t n, const T* x, T* y);
/// gx = gy (1 − y²); y is the forward's output.
template <class T>
void tanh_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx);
template <class T>
void tanh_backward(CudaQueue&, std::int64_t n, const T* y, const T* gy, T* gx);

/// y = 1 / (1 + e^−x)
template <class T>
void sigmoid_forward(CpuQueue&, std::int64_t n, const T* x, T* y);
template <class T>
void sigmoid_forward(CudaQueue&, std::int64_t n, const T* x, T* y);
/// gx = gy y (1 − y); y is the forward's output.
template <class T>
void sigmoid_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx);
template <class T>
void sigmoid_backward(CudaQueue&, std::int64_t n, const T* y, const T* gy, T* gx);

/// y = x sigmoid(x) (Ramachandran et al., 2017: swish)
template <class T>
void silu_forward(CpuQueue&, std::int64_t n, const T* x, T* y);
template <class T>
void silu_forward(CudaQueue&, std::int64_t n, const T* x, T* y);
/// From the forward's input.
template <class T>
void silu_backward(CpuQueue&, std::int64_t n, const T* x, const T* gy, T* gx);
template <class T>
void silu_backward(CudaQueue&, std::int64_t n, const T* x, const T* gy, T* gx);

/// y[r,c] = x[r,c] + bias[c]; x and y are (rows, cols). Its bias gradient is column_sum (reduce.h).
template <class T>
void bias_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y);
template <class T>
void bias_forward(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y);

/// y[r,c] = z Φ(z) of z = x[r,c] + bias[c], Φ the normal distribution (Hendrycks and Gimpel, 2016); x and y
/// are (rows, cols). No bias: null.
template <class T>
void gelu_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y);
template <class T>
void gelu_forward(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y);
/// gx = gy (Φ(z) + z φ(z)), φ the density.
template <class T>
void gelu_backward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                   const T* gy, T* gx);
template <class T>
void gelu_backward(CudaQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                   const T* gy, T* gx);

}  // namespace ssn::kernels
