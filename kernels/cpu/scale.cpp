#include "kernels/scale.h"

#include "kernels/cpu/columns.h"

namespace ssn::kernels {
namespace {
/// y[i] = x[i] · factors[i], i < n
template <class X, class T>
SSN_CLONES void scale_step(const X* x, int n, const T* factors, X* y) {
#pragma omp simd
  for (int i = 0; i < n; ++i) store(y[i], x[i] * factors[i]);
}

/// sums[i] += x[i] · gy[i], i < n
template <class X, class T>
[[gnu::noinline]] SSN_CLONES void add_products(const X* x, const X* gy, int n, std::int64_t ahead, T* sums) {
  const auto add = [=](int begin, int end) {
#pragma omp simd
    for (int i = begin; i < end; ++i) sums[i] += T{x[i]} * gy[i];
  };
  in_strips(n, ahead, add, x, gy);
}

/// f(image, its factors as wide as a step) in parallel.
template <class T, class F>
void for_images(const Columns& columns, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                const T* s, F&& f) {
  parallel_for(n, 1 + 8192 / std::max<std::int64_t>(pixels * channels, 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t image = begin; image < end; ++image) {
                   T factors[Columns::kWidth];
                   columns.spread([&](std::int64_t c) { return s[image * channels + c]; }, factors);
                   f(image, factors);
                 }
               });
}
}  // namespace

template <class X>
void scale_channels_forward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels, const X* x,
                            const Wider<X>* s, X* y) {
  for_columns(channels, [&](const Columns& columns) {
    for_images(columns, n, pixels, channels, s, [&](std::int64_t image, const Wider<X>* factors) {
      columns.steps(image * pixels, (image + 1) * pixels,
                    [&](std::int64_t at, int width) { scale_step(x + at, width, factors, y + at); });
    });
  });
}

template <class X>
void scale_channels_backward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                             const X* x, const Wider<X>* s, const X* gy, X* gx, Wider<X>* gs) {
  for_columns(channels, [&](const Columns& columns) {
    for_images(columns, n, pixels, channels, s, [&](std::int64_t image, const Wider<X>* factors) {
      Wider<X> sums[Columns::kWidth] = {};
      columns.steps(image * pixels, (image + 1) * pixels, [&](std::int64_t at, int width) {
        add_products(x + at, gy + at, width, columns.ahead<X>(), sums);
        scale_step(gy + at, width, factors, gx + at);
      });
      columns.gather(sums, gs + image * channels + columns.first);
    });
  });
}

template void scale_channels_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                           const float*, bf16*);
template void scale_channels_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                            const float*, const bf16*, bf16*, float*);
template void scale_channels_forward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                            const float*, float*);
template void scale_channels_forward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const double*, const double*, double*);
template void scale_channels_backward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, const float*, const float*, float*, float*);
template void scale_channels_backward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const double*, const double*, const double*, double*, double*);

}  // namespace ssn::kernels
