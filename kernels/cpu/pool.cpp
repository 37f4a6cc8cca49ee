#include "kernels/pool.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/functors.h"
#include "kernels/pool_windows.h"

namespace ssn::kernels {
namespace {
/// f(image, row, column) over all n · h · w, in parallel.
template <class F>
void for_pixels(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, F&& f) {
  parallel_for(n * h * w, 1 + 4096 / std::max<std::int64_t>(c, 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      f(i / (h * w), static_cast<int>(i / w % h), static_cast<int>(i % w));
  });
}

}  // namespace

template <class T>
void max_pool_forward(CpuQueue&, const PoolGeometry& g, const T* x, T* y, std::int32_t* winner) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, oh, ow, g.c, [&](std::int64_t image, int row, int col) {
    const std::int64_t at = ((image * oh + row) * ow + col) * g.c;
    T* best = y + at;
    std::int32_t* won = winner + at;
    const WindowRange rows = window(g, 0, g.h, row), cols = window(g, 1, g.w, col);
    const auto from = [&](int ih, int iw) { return x + ((image * g.h + ih) * g.w + iw) * g.c; };
    std::copy_n(from(rows.begin, cols.begin), g.c, best);
    std::fill_n(won, g.c, static_cast<std::int32_t>(rows.begin * g.w + cols.begin));
    for (int ih = rows.begin; ih < rows.end; ++ih)
      for (int iw = cols.begin; iw < cols.end; ++iw) {
        const T* v = from(ih, iw);
        const std::int32_t index = static_cast<std::int32_t>(ih * g.w + iw);
#pragma omp simd
        for (std::int64_t c = 0; c < g.c; ++c) {
          const bool wins = v[c] > best[c] || v[c] != v[c];
          best[c] = wins ? v[c] : best[c];
          won[c] = wins ? index : won[c];
        }
      }
  });
}

template <class T>
void max_pool_backward(CpuQueue&, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, g.h, g.w, g.c, [&](std::int64_t image, int row, int col) {
    T* to = gx + ((image * g.h + row) * g.w + col) * g.c;
    const std::int32_t index = static_cast<std::int32_t>(row * g.w + col);
    const WindowRange rows = windows_over(g, 0, oh, row), cols = windows_over(g, 1, ow, col);
    std::fill_n(to, g.c, T(0));
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = cols.begin; k < cols.end; ++k) {
        const std::int64_t at = ((image * oh + r) * ow + k) * g.c;
        const T* from = gy + at;
        const std::int32_t* won = winner + at;
#pragma omp simd
        for (std::int64_t c = 0; c < g.c; ++c) to[c] += kept_if(won[c] == index, from[c]);
      }
  });
}

template <class T>
void avg_pool_forward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* x, T* y) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, oh, ow, g.c, [&](std::int64_t image, int row, int col) {
    T* to = y + ((image * oh + row) * ow + col) * g.c;
    const WindowRange rows = window(g, 0, g.h, row), cols = window(g, 1, g.w, col);
    std::fill_n(to, g.c, T(0));
    for (int ih = rows.begin; ih < rows.end; ++ih)
      for (int iw = cols.begin; iw < cols.end; ++iw) {
        const T* from = x + ((image * g.h + ih) * g.w + iw) * g.c;
#pragma omp simd
        for (std::int64_t c = 0; c < g.c; ++c) to[c] += from[c];
      }
    const T share = window_share<T>(g, count_padding, rows, cols);
    for (std::int64_t c = 0; c < g.c; ++c) to[c] *= share;
  });
}

template <class T>
void avg_pool_backward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* gy, T* gx) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, g.h, g.w, g.c, [&](std::int64_t image, int row, int col) {
    T* to = gx + ((image * g.h + row) * g.w + col) * g.c;
    const WindowRange rows = windows_over(g, 0, oh, row), cols = windows_over(g, 1, ow, col);
    std::fill_n(to, g.c, T(0));
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = cols.begin; k < cols.end; ++k) {
        const T* from = gy + ((image * oh + r) * ow + k) * g.c;
        const T share = window_share<T>(g, count_padding, window(g, 0, g.h, r), window(g, 1, g.w, k));
#pragma omp simd
        for (std::int64_t c = 0; c < g.c; ++c) to[c] = std::fma(from[c], share, to[c]);
      }
  });
}

template <class T>
void global_avg_pool_forward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             T* y) {
  for_columns(c, [&](const Columns& columns) {
    parallel_for(
        n, 1 + 8192 / std::max<std::int64_t>(pixels * c, 1), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t image = begin; image < end; ++image) {
            T sums[Columns::kWidth] = {};
            columns.steps(image * pixels, (image + 1) * pixels,
                          [&](std::int64_t at, int n) { add_step(x + at, n, columns.ahead<T>(), sums); });
            T* to = y + image * c + columns.first;
            columns.gather(sums, to);
            for (int i = 0; i < columns.count; ++i) to[i] /= static_cast<T>(pixels);
          }
        });
  });
}

template <class T>
void global_avg_pool_backward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* gy,
                              T* gx) {
  const T share = T(1) / static_cast<T>(pixels);
  for_pixels(n, 1, pixels, c, [&](std::int64_t image, int, int pixel) {
    T* to = gx + (image * pixels + pixel) * c;
    const T* from = gy + image * c;
#pragma omp simd
    for (std::int64_t i = 0; i < c; ++i) to[i] = from[i] * share;
  });
}

template void max_pool_forward<float>(CpuQueue&, const PoolGeometry&, const float*, float*, std::int32_t*);
template void max_pool_forward<double>(CpuQueue&, const PoolGeometry&, const double*, double*, std::int32_t*);
template void max_pool_backward<float>(CpuQueue&, const PoolGeometry&, const float*, const std::int32_t*,
                                       float*);
template void max_pool_backward<double>(CpuQueue&, const PoolGeometry&, const double*, const std::int32_t*,
                                        double*);
template void avg_pool_forward<float>(CpuQueue&, const PoolGeometry&, bool, const float*, float*);
template void avg_pool_forward<double>(CpuQueue&, const PoolGeometry&, bool, const double*, double*);
template void avg_pool_backward<float>(CpuQueue&, const PoolGeometry&, bool, const float*, float*);
template void avg_pool_backward<double>(CpuQueue&, const PoolGeometry&, bool, const double*, double*);
template void global_avg_pool_forward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, float*);
template void global_avg_pool_forward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const double*, double*);
template void global_avg_pool_backward<float>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                              const float*, float*);
template void global_avg_pool_backward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                               const double*, double*);

}  // namespace ssn::kernels
