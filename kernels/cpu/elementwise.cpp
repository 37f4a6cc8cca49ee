#include "kernels/elementwise.h"

#include "kernels/activation.h"
#include "kernels/functors.h"
#include "runtime/bf16.h"
#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {
constexpr std::int64_t kGrain = 8192;  // fewer elements take less time than a thread takes to start

/// y[i] = f(a[i], ...)
template <class T, class F, class... A>
SSN_CLONES void map_run(std::int64_t n, T* y, F f, const A*... a) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) store(y[i], f(a[i]...));
}
template <class T, class F, class... A>
void map(std::int64_t n, T* y, F f, const A*... a) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    map_run(end - begin, y + begin, f, a + begin...);
  });
}
/// f(part of the elements of a row of x (rows, cols), how many, their bias) in parallel; without a bias all
/// is one row.
template <class T, class F>
void for_parts(std::int64_t rows, std::int64_t cols, const T* bias, F&& f) {
  if (!bias) {
    parallel_for(rows * cols, kGrain,
                 [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin, nullptr); });
    return;
  }
  parallel_for(rows, 1 + kGrain / std::max<std::int64_t>(cols, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) f(r * cols, cols, bias);
  });
}

template <class T, bool kBias>
SSN_CLONES void gelu_run(std::int64_t n, const T* x, const Wider<T>* bias, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Wider<T> z = kBias ? x[i] + bias[i] : Wider<T>(x[i]);
    store(y[i], z * normal_at(z).below);
  }
}
template <class T, bool kBias>
SSN_CLONES void gelu_gradient_run(std::int64_t n, const T* x, const Wider<T>* bias, const T* gy, T* gx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Wider<T> z = kBias ? x[i] + bias[i] : Wider<T>(x[i]);
    const Normal<Wider<T>> at = normal_at(z);
    store(gx[i], gy[i] * std::fma(z, at.density, at.below));
  }
}
}  // namespace

template <class T>
void accumulate(CpuQueue&, std::int64_t n, const T* x, T* y) {
  using W = Wider<T>;
  map(
      n, y, [](W a, W b) { return a + b; }, y, x);
}
template <class From, class To>
void convert(CpuQueue&, std::int64_t n, const From* x, To* y) {
  map(
      n, y, [](float v) { return v; }, x);
}
template <class T>
void add_forward(CpuQueue&, std::int64_t n, const T* a, const T* b, T* y) {
  using W = Wider<T>;
  map(
      n, y, [](W u, W v) { return u + v; }, a, b);
}
template <class T>
void add_relu_forward(CpuQueue&, std::int64_t n, const T* a, const T* b, T* y) {
  using W = Wider<T>;
  map(
      n, y, [](W u, W v) { return relu(u + v); }, a, b);
}
template <class T>
void relu_forward(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](Wider<T> v) { return relu(v); }, x);
}
template <class T>
void relu_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx) {
  using W = Wider<T>;
  map(
      n, gx, [](W v, W g) { return relu_gradient(v, g); }, y, gy);
}
template <class T>
void tanh_forward(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](Wider<T> v) { return std::tanh(v); }, x);
}
template <class T>
void tanh_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx) {
  using W = Wider<T>;
  map(
      n, gx, [](W v, W g) { return tanh_gradient(v, g); }, y, gy);
}
template <class T>
void sigmoid_forward(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](T v) { return sigmoid(v); }, x);
}
template <class T>
void sigmoid_backward(CpuQueue&, std::int64_t n, const T* y, const T* gy, T* gx) {
  map(
      n, gx, [](T v, T g) { return sigmoid_gradient(v, g); }, y, gy);
}
template <class T>
void silu_forward(CpuQueue&, std::int64_t n, const T* x, T* y) {
  map(
      n, y, [](T v) { return silu(v); }, x);
}
template <class T>
void silu_backward(CpuQueue&, std::int64_t n, const T* x, const T* gy, T* gx) {
  map(
      n, gx, [](T v, T g) { return silu_gradient(v, g); }, x, gy);
}
template <class T>
void bias_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y) {
  for_parts(rows, cols, bias, [=](std::int64_t at, std::int64_t n, const Wider<T>* b) {
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) store(y[at + c], x[at + c] + b[c]);
  });
}
template <class T>
void gelu_forward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias, T* y) {
  const auto run = bias ? gelu_run<T, true> : gelu_run<T, false>;
  for_parts(rows, cols, bias,
            [=](std::int64_t at, std::int64_t n, const Wider<T>* b) { run(n, x + at, b, y + at); });
}
template <class T>
void gelu_backward(CpuQueue&, std::int64_t rows, std::int64_t cols, const T* x, const Wider<T>* bias,
                   const T* gy, T* gx) {
  const auto run = bias ? gelu_gradient_run<T, true> : gelu_gradient_run<T, false>;
  for_parts(rows, cols, bias,
            [=](std::int64_t at, std::int64_t n, const Wider<T>* b) { run(n, x + at, b, gy + at, gx + at); });
}

template void convert<float, bf16>(CpuQueue&, std::int64_t, const float*, bf16*);
template void convert<bf16, float>(CpuQueue&, std::int64_t, const bf16*, float*);
template void accumulate<bf16>(CpuQueue&, std::int64_t, const bf16*, bf16*);
template void add_forward<bf16>(CpuQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void add_relu_forward<bf16>(CpuQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void relu_forward<bf16>(CpuQueue&, std::int64_t, const bf16*, bf16*);
template void relu_backward<bf16>(CpuQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void tanh_forward<bf16>(CpuQueue&, std::int64_t, const bf16*, bf16*);
template void tanh_backward<bf16>(CpuQueue&, std::int64_t, const bf16*, const bf16*, bf16*);
template void bias_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, const float*, bf16*);
template void gelu_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, const float*, bf16*);
template void gelu_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, const bf16*, const float*,
                                  const bf16*, bf16*);
template void accumulate<float>(CpuQueue&, std::int64_t, const float*, float*);
template void accumulate<double>(CpuQueue&, std::int64_t, const double*, double*);
template void add_forward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void add_forward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void add_relu_forward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void relu_forward<float>(CpuQueue&, std::int64_t, const float*, float*);
template void add_relu_forward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void relu_forward<double>(CpuQueue&, std::int64_t, const double*, double*);
template void relu_backward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void relu_backward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void bias_forward<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void bias_forward<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);
template void tanh_forward<float>(CpuQueue&, std::int64_t, const float*, float*);
template void tanh_forward<double>(CpuQueue&, std::int64_t, const double*, double*);
template void tanh_backward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void tanh_backward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void sigmoid_forward<float>(CpuQueue&, std::int64_t, const float*, float*);
template void sigmoid_forward<double>(CpuQueue&, std::int64_t, const double*, double*);
template void sigmoid_backward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void sigmoid_backward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void silu_forward<float>(CpuQueue&, std::int64_t, const float*, float*);
template void silu_forward<double>(CpuQueue&, std::int64_t, const double*, double*);
template void silu_backward<float>(CpuQueue&, std::int64_t, const float*, const float*, float*);
template void silu_backward<double>(CpuQueue&, std::int64_t, const double*, const double*, double*);
template void gelu_forward<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const float*, float*);
template void gelu_forward<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                   double*);
template void gelu_backward<float>(CpuQueue&, std::int64_t, std::int64_t, const float*, const float*,
                                   const float*, float*);
template void gelu_backward<double>(CpuQueue&, std::int64_t, std::int64_t, const double*, const double*,
                                    const double*, double*);

}  // namespace ssn::kernels
