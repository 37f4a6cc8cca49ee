#include "kernels/elementwise.h"

#include "kernels/functors.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
constexpr std::int64_t kGrain = 8192;  // fewer elements take less time than a thread takes to start

/// y[i] = f(a[i], ...)
template <class T, class F, class... A>
void map(std::int64_t n, T* y, F f, const A*... a) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) y[i] = f(a[i]...);
  });
}
}  // namespace

template <class T>
void accumulate(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](T a, T b) { return a + b; }, y, x);
}
template <class T>
void add_forward(CpuQueue&, std::int64_t n, const T* a, const T* b, T* y) {
  map(
      n, y, [](T u, T v) { return u + v; }, a, b);
}
template <class T>
void relu_forward(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](T v) { return relu(v); }, x);
}
template <class T>
void relu_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx) {
  map(
      n, gx, [](T v, T g) { return relu_gradient(v, g); }, y, gy);
}
template <class T>
void bias_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const T* bias, T* y) {
  parallel_for(rows, 1 + kGrain / std::max<std::int64_t>(cols, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* from = x + r * cols;
      T* to = y + r * cols;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) to[c] = from[c] + bias[c];
    }
  });
}

template void accumulate<float>(CpuQueue&, std::int64_t, const float*, float*);
template void accumulate<double>(CpuQueue&, std::int64_t, const double*, double*);
template void add_forward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void add_forward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void relu_forward<float>(CpuQueue&, std::int64_t, const float*, float*);
template void relu_forward<double>(CpuQueue&, std::int64_t, const double*, double*);
template void relu_backward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void relu_backward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void bias_forward<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void bias_forward<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);

}  // namespace ssn::kernels
