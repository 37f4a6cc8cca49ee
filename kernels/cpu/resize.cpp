#include "kernels/resize.h"

#include <algorithm>
#include <cmath>

#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

constexpr std::int64_t kColumns = 1024;  // whose sources or weights are computed at once

/// The inputs around a source, and the share of the second.
template <class T>
struct Corner {
  std::int64_t low, high;
  T share;

  Corner() = default;
  Corner(std::int64_t i, std::int64_t in, std::int64_t out) {
    const double source = resize_source(i, in, out);
    low = static_cast<std::int64_t>(source);
    high = std::min(low + 1, in - 1);
    share = static_cast<T>(source - static_cast<double>(low));
  }
};

template <class T>
T between(T a, T b, T share) {
  return std::fma(share, b - a, a);
}

/// `count` columns of one row of y, from the rows a and b of x.
template <class T>
SSN_CLONES void resize_row(std::int64_t count, std::int64_t c, const Corner<T>* column, T share, const T* a,
                           const T* b, T* y) {
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t low = column[j].low * c, high = column[j].high * c;
    for (std::int64_t k = 0; k < c; ++k) {
      const T top = between(a[low + k], a[high + k], column[j].share);
      y[j * c + k] = between(top, between(b[low + k], b[high + k], column[j].share), share);
    }
  }
}

}  // namespace

template <class T>
void resize_bilinear_forward(CpuQueue&, const ResizeGeometry& g, const T* x, T* y) {
  const std::int64_t rows = g.n * g.out_h, blocks = (g.out_w + kColumns - 1) / kColumns;
  // Block by block of columns, so that a block's corners serve many rows.
  parallel_for(blocks * rows, std::max<std::int64_t>(1, 4096 / g.out_w),
               [&](std::int64_t begin, std::int64_t end) {
                 Corner<T> columns[kColumns];
                 std::int64_t first = -1, count = 0;
                 for (std::int64_t at = begin; at < end; ++at) {
                   if (first != at / rows * kColumns) {
                     first = at / rows * kColumns;
                     count = std::min(kColumns, g.out_w - first);
                     for (std::int64_t j = 0; j < count; ++j) columns[j] = {first + j, g.w, g.out_w};
                   }
                   const std::int64_t row = at % rows;
                   const Corner<T> r(row % g.out_h, g.h, g.out_h);
                   const T* image = x + row / g.out_h * g.h * g.w * g.c;
                   resize_row(count, g.c, columns, r.share, image + r.low * g.w * g.c,
                              image + r.high * g.w * g.c, y + (row * g.out_w + first) * g.c);
                 }
               });
}

template <class T>
void resize_bilinear_backward(CpuQueue&, const ResizeGeometry& g, const T* gy, T* gx) {
  const std::int64_t columns = g.n * g.h;  // elements of gx that share a column's weights
  const std::int64_t window = (g.out_h / g.h + 2) * (g.out_w / g.w + 2);
  parallel_for(
      g.w * columns, std::max<std::int64_t>(1, 8192 / window), [&](std::int64_t begin, std::int64_t end) {
        double weights[kColumns];
        std::int64_t column = -1, block = -1;
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t l = at / columns, image = at % columns / g.h, k = at % g.h;
          const ResizeRange rows = resize_readers(k, g.h, g.out_h), cols = resize_readers(l, g.w, g.out_w);
          for (std::int64_t ch = 0; ch < g.c; ++ch) {
            double sum = 0;
            for (std::int64_t first = cols.first; first < cols.last; first += kColumns) {
              const std::int64_t count = std::min(kColumns, cols.last - first);
              if (column != l || block != first) {
                for (std::int64_t j = 0; j < count; ++j)
                  weights[j] = resize_weight(resize_source(first + j, g.w, g.out_w), l);
                column = l, block = first;
              }
              for (std::int64_t i = rows.first; i < rows.last; ++i) {
                const double weight = resize_weight(resize_source(i, g.h, g.out_h), k);
                const T* from = gy + ((image * g.out_h + i) * g.out_w + first) * g.c + ch;
                double of_row = 0;
                for (std::int64_t j = 0; j < count; ++j)
                  of_row += weights[j] * static_cast<double>(from[j * g.c]);
                sum += weight * of_row;
              }
            }
            gx[((image * g.h + k) * g.w + l) * g.c + ch] = static_cast<T>(sum);
          }
        }
      });
}

template void resize_bilinear_forward(CpuQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_forward(CpuQueue&, const ResizeGeometry&, const double*, double*);
template void resize_bilinear_backward(CpuQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_backward(CpuQueue&, const ResizeGeometry&, const double*, double*);

}  // namespace ssn::kernels
