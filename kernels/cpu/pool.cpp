#include "kernels/pool.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/columns.h"
#include "kernels/functors.h"
#include "kernels/pool_windows.h"
#include "runtime/bf16.h"

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
          const Wider<T> value = v[c], most = best[c];
          const bool wins = value > most || value != value;
          store(best[c], wins ? value : most);
          won[c] = wins ? index : won[c];
        }
      }
  });
}

namespace {
/// to[c] = factor · Σ over the pixels of `rows` and `cols` of term(pixel's row, column)(c)
template <class T, class Term>
void sum_windows(std::int64_t channels, const WindowRange& rows, const WindowRange& cols, Wider<T> factor,
                 T* to, Term&& term) {
  constexpr std::int64_t kStretch = 256;
  for (std::int64_t first = 0; first < channels; first += kStretch) {
    const auto n = static_cast<int>(std::min(kStretch, channels - first));
    Wider<T> sums[kStretch] = {};
    for (int r = rows.begin; r < rows.end; ++r)
      for (int k = cols.begin; k < cols.end; ++k) {
        const auto of_channel = term(r, k);
#pragma omp simd
        for (int c = 0; c < n; ++c) sums[c] += of_channel(first + c);
      }
#pragma omp simd
    for (int c = 0; c < n; ++c) store(to[first + c], factor * sums[c]);
  }
}
}  // namespace

template <class T>
void max_pool_backward(CpuQueue&, const PoolGeometry& g, const T* gy, const std::int32_t* winner, T* gx) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, g.h, g.w, g.c, [&](std::int64_t image, int row, int col) {
    const std::int32_t index = static_cast<std::int32_t>(row * g.w + col);
    const WindowRange rows = windows_over(g, 0, oh, row), cols = windows_over(g, 1, ow, col);
    T* to = gx + ((image * g.h + row) * g.w + col) * g.c;
    sum_windows(g.c, rows, cols, Wider<T>(1), to, [&](int r, int k) {
      const std::int64_t at = ((image * oh + r) * ow + k) * g.c;
      return [from = gy + at, won = winner + at, index](std::int64_t c) {
        return kept_if(won[c] == index, static_cast<Wider<T>>(from[c]));
      };
    });
  });
}

template <class T>
void avg_pool_forward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* x, T* y) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, oh, ow, g.c, [&](std::int64_t image, int row, int col) {
    const WindowRange rows = window(g, 0, g.h, row), cols = window(g, 1, g.w, col);
    const auto share = window_share<Wider<T>>(g, count_padding, rows, cols);
    sum_windows(g.c, rows, cols, share, y + ((image * oh + row) * ow + col) * g.c, [&](int ih, int iw) {
      return [from = x + ((image * g.h + ih) * g.w + iw) * g.c](std::int64_t c) {
        return static_cast<Wider<T>>(from[c]);
      };
    });
  });
}

template <class T>
void avg_pool_backward(CpuQueue&, const PoolGeometry& g, bool count_padding, const T* gy, T* gx) {
  const std::int64_t oh = g.out_h(), ow = g.out_w();
  for_pixels(g.n, g.h, g.w, g.c, [&](std::int64_t image, int row, int col) {
    const WindowRange rows = windows_over(g, 0, oh, row), cols = windows_over(g, 1, ow, col);
    T* to = gx + ((image * g.h + row) * g.w + col) * g.c;
    sum_windows(g.c, rows, cols, Wider<T>(1), to, [&](int r, int k) {
      const auto share = window_share<Wider<T>>(g, count_padding, window(g, 0, g.h, r), window(g, 1, g.w, k));
      return [from = gy + ((image * oh + r) * ow + k) * g.c, share](std::int64_t c) {
        return static_cast<Wider<T>>(from[c]) * share;
      };
    });
  });
}

template <class T>
void global_avg_pool_forward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c, const T* x,
                             Wider<T>* y) {
  for_columns(c, [&](const Columns& columns) {
    parallel_for(
        n, 1 + 8192 / std::max<std::int64_t>(pixels * c, 1), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t image = begin; image < end; ++image) {
            Wider<T> sums[Columns::kWidth] = {};
            columns.steps(image * pixels, (image + 1) * pixels,
                          [&](std::int64_t at, int n) { add_step(x + at, n, columns.ahead<T>(), sums); });
            Wider<T>* to = y + image * c + columns.first;
            columns.gather(sums, to);
            for (int i = 0; i < columns.count; ++i) to[i] /= static_cast<Wider<T>>(pixels);
          }
        });
  });
}

namespace {
/// to[i] = or += from[i] · share, i < c
template <bool kAdd, class T>
SSN_CLONES void spread_pixel(std::int64_t c, const Wider<T>* from, Wider<T> share, T* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < c; ++i)
    store(to[i], kAdd ? std::fma(from[i], share, static_cast<Wider<T>>(to[i])) : from[i] * share);
}
}  // namespace

template <class T>
void global_avg_pool_backward(CpuQueue&, std::int64_t n, std::int64_t pixels, std::int64_t c,
                              const Wider<T>* gy, T* gx, bool add) {
  const Wider<T> share = Wider<T>(1) / static_cast<Wider<T>>(pixels);
  const auto spread = add ? spread_pixel<true, T> : spread_pixel<false, T>;
  for_pixels(n, 1, pixels, c, [&](std::int64_t image, int, int pixel) {
    spread(c, gy + image * c, share, gx + (image * pixels + pixel) * c);
  });
}

template void max_pool_forward<bf16>(CpuQueue&, const PoolGeometry&, const bf16*, bf16*, std::int32_t*);
template void max_pool_backward<bf16>(CpuQueue&, const PoolGeometry&, const bf16*, const std::int32_t*,
                                      bf16*);
template void avg_pool_forward<bf16>(CpuQueue&, const PoolGeometry&, bool, const bf16*, bf16*);
template void avg_pool_backward<bf16>(CpuQueue&, const PoolGeometry&, bool, const bf16*, bf16*);
template void global_avg_pool_forward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*,
                                            float*);
template void global_avg_pool_backward<bf16>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                             const float*, bf16*, bool);
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
                                              const float*, float*, bool);
template void global_avg_pool_backward<double>(CpuQueue&, std::int64_t, std::int64_t, std::int64_t,
                                               const double*, double*, bool);

}  // namespace ssn::kernels
