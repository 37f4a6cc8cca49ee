#include "kernels/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

constexpr std::int64_t kColumns = 1024;  // outputs of a row whose sources are computed at once

template <class T>
T between(T a, T b, T share) {
  return std::fma(share, b - a, a);
}

/// Where a run of at most kColumns outputs of an axis reads: elements low and high, counted from `base`, and
/// the share of the second.
template <class T>
struct Sources {
  std::int64_t first = -1, count = 0, base = 0;
  std::int32_t low[kColumns], high[kColumns];
  T share[kColumns];

  /// Outputs [begin, end); does nothing if it holds them.
  void find(std::int64_t begin, std::int64_t end, std::int64_t in, std::int64_t out) {
    if (begin == first && end - begin == count) return;
    first = begin, count = end - begin;
    base = static_cast<std::int64_t>(resize_source(begin, in, out));
    for (std::int64_t j = 0; j < count; ++j) {
      const double source = resize_source(begin + j, in, out);
      const auto at = static_cast<std::int64_t>(source);
      low[j] = static_cast<std::int32_t>(at - base);
      high[j] = static_cast<std::int32_t>(std::min(at + 1, in - 1) - base);
      share[j] = static_cast<T>(source - static_cast<double>(at));
    }
  }
};

/// A run of one row of y from the rows a and b of x, which start at the run's base.
template <class T>
void resize_run(const Sources<T>& s, std::int64_t c, T share, const T* a, const T* b, T* y) {
  for (std::int64_t j = 0; j < s.count; ++j) {
    const std::int64_t low = s.low[j] * c, high = s.high[j] * c;
    for (std::int64_t k = 0; k < c; ++k)
      y[j * c + k] = between(between(a[low + k], b[low + k], share), between(a[high + k], b[high + k], share),
                             s.share[j]);
  }
}

/// The same of a matrix that is not narrowed: its few columns first become one row.
template <class T>
SSN_CLONES void widen_run(const Sources<T>& s, T share, const T* a, const T* b, T* y) {
  T row[kColumns + 2];
  const std::int64_t width = s.high[s.count - 1] + 1;
#pragma omp simd
  for (std::int64_t j = 0; j < width; ++j) row[j] = between(a[j], b[j], share);
#pragma omp simd
  for (std::int64_t j = 0; j < s.count; ++j) y[j] = between(row[s.low[j]], row[s.high[j]], s.share[j]);
}

/// sums[j] += weight · gy[j · stride]
template <class T>
SSN_CLONES void add_run(std::int64_t count, std::int64_t stride, double weight, const T* gy, double* sums) {
  if (stride == 1) {
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) sums[j] = std::fma(weight, static_cast<double>(gy[j]), sums[j]);
  } else {
    for (std::int64_t j = 0; j < count; ++j)
      sums[j] = std::fma(weight, static_cast<double>(gy[j * stride]), sums[j]);
  }
}

/// Adds what a run of outputs, whose gradients summed over their rows are `run`, gives to the inputs that it
/// reads; `sums` starts at the run's base.
void gather_run(const Sources<double>& s, const double* run, double* sums) {
  for (std::int64_t j = 0; j < s.count;) {
    const std::int32_t low = s.low[j];
    double near = 0, far = 0;
    for (; j < s.count && s.low[j] == low; ++j) {
      near = std::fma(1 - s.share[j], run[j], near);
      far = std::fma(s.share[j], run[j], far);
    }
    sums[low] += near, sums[low + 1] += far;
  }
}

/// Inputs [first, last) of one row and channel of gx, from the rows of gy that read it.
template <class T>
void gather_row(const ResizeGeometry& g, std::int64_t k, std::int64_t first, std::int64_t last, const T* gy,
                Sources<double>& sources, T* gx) {
  const ResizeRange rows = resize_readers(k, g.h, g.out_h);
  const ResizeRange columns = {resize_readers(first, g.w, g.out_w).first,
                               resize_readers(last - 1, g.w, g.out_w).last};
  double sums[kColumns + 2] = {};  // of inputs [first − 1, last + 1)
  for (std::int64_t begin = columns.first; begin < columns.last; begin += kColumns) {
    sources.find(begin, std::min(begin + kColumns, columns.last), g.w, g.out_w);
    double run[kColumns];
    std::fill_n(run, sources.count, 0.0);
    for (std::int64_t i = rows.first; i < rows.last; ++i)
      add_run(sources.count, g.c, resize_weight(resize_source(i, g.h, g.out_h), k),
              gy + (i * g.out_w + begin) * g.c, run);
    gather_run(sources, run, sums + (sources.base - first + 1));
  }
  for (std::int64_t l = first; l < last; ++l) gx[(k * g.w + l) * g.c] = static_cast<T>(sums[l - first + 1]);
}

}  // namespace

template <class T>
void resize_bilinear_forward(CpuQueue&, const ResizeGeometry& g, const T* x, T* y) {
  const std::int64_t rows = g.n * g.out_h, runs = (g.out_w + kColumns - 1) / kColumns;
  const bool widen = g.c == 1 && g.w <= g.out_w;
  // Run by run of columns, so that their sources serve many rows.
  parallel_for(runs * rows, std::max<std::int64_t>(1, 16384 / (g.out_w * g.c)),
               [&](std::int64_t begin, std::int64_t end) {
                 Sources<T> columns;
                 for (std::int64_t at = begin; at < end; ++at) {
                   const std::int64_t row = at % rows, first = at / rows * kColumns;
                   columns.find(first, std::min(first + kColumns, g.out_w), g.w, g.out_w);
                   const double source = resize_source(row % g.out_h, g.h, g.out_h);
                   const auto top = static_cast<std::int64_t>(source), bottom = std::min(top + 1, g.h - 1);
                   const T share = static_cast<T>(source - static_cast<double>(top));
                   const T* image = x + (row / g.out_h * g.h * g.w + columns.base) * g.c;
                   const T *a = image + top * g.w * g.c, *b = image + bottom * g.w * g.c;
                   T* to = y + (row * g.out_w + first) * g.c;
                   if (widen)
                     widen_run(columns, share, a, b, to);
                   else
                     resize_run(columns, g.c, share, a, b, to);
                 }
               });
}

template <class T>
void resize_bilinear_backward(CpuQueue&, const ResizeGeometry& g, const T* gy, T* gx) {
  // Inputs of a row that are gathered at once: as many as one run of outputs reads, so that its sources serve
  // many rows.
  const std::int64_t inputs = std::clamp<std::int64_t>(kColumns * g.w / g.out_w - 3, 1, kColumns);
  const std::int64_t rows = g.n * g.h, runs = (g.w + inputs - 1) / inputs;
  const std::int64_t work =
      2 * (g.out_h / g.h + 1) * std::min(g.out_w / g.w + 1, g.out_w) * std::min(inputs, g.w) * g.c;
  parallel_for(
      runs * rows, std::max<std::int64_t>(1, 32768 / work), [&](std::int64_t begin, std::int64_t end) {
        Sources<double> sources;
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t row = at % rows, first = at / rows * inputs;
          const T* from = gy + row / g.h * g.out_h * g.out_w * g.c;
          T* to = gx + row / g.h * g.h * g.w * g.c;
          for (std::int64_t ch = 0; ch < g.c; ++ch)
            gather_row(g, row % g.h, first, std::min(first + inputs, g.w), from + ch, sources, to + ch);
        }
      });
}

template void resize_bilinear_forward(CpuQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_forward(CpuQueue&, const ResizeGeometry&, const double*, double*);
template void resize_bilinear_backward(CpuQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_backward(CpuQueue&, const ResizeGeometry&, const double*, double*);

}  // namespace ssn::kernels
