#pragma once
#include <cstdint>

#include "runtime/hd.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// Bilinear resizing of x (n, h, w, c), channels last, to y (n, out_h, out_w, c); a matrix is (1, rows, cols,
/// 1). No extent is 0. Half-pixel centres, no antialias.
struct ResizeGeometry {
  std::int64_t n, h, w, c, out_h, out_w;
};

/// Where output i of `out` reads from an axis of `in` elements: a place in [0, in − 1].
SSN_HD inline double resize_source(std::int64_t i, std::int64_t in, std::int64_t out) {
  const double s =
      (static_cast<double>(i) + 0.5) * (static_cast<double>(in) / static_cast<double>(out)) - 0.5;
  const double last = static_cast<double>(in - 1);
  return s < 0 ? 0 : s > last ? last : s;
}
/// What input k contributes to an output that reads at `source`.
SSN_HD inline double resize_weight(double source, std::int64_t k) {
  const double distance = source - static_cast<double>(k);
  const double w = 1 - (distance < 0 ? -distance : distance);
  return w < 0 ? 0 : w;
}
/// Outputs [first, last) of an axis that read input k; empty where there are none, but still in order.
struct ResizeRange {
  std::int64_t first, last;
};
SSN_HD inline ResizeRange resize_readers(std::int64_t k, std::int64_t in, std::int64_t out) {
  const double ratio = static_cast<double>(out) / static_cast<double>(in), place = static_cast<double>(k);
  // Estimates from outside, as the sources are rounded.
  auto first = static_cast<std::int64_t>((place - 0.5) * ratio - 0.5) - 1;
  auto last = static_cast<std::int64_t>((place + 1.5) * ratio - 0.5) + 2;
  if (k == 0 || first < 0) first = 0;
  if (k == in - 1 || last > out) last = out;
  while (first < last && resize_source(first, in, out) <= place - 1) ++first;
  while (first < last && resize_source(last - 1, in, out) >= place + 1) --last;
  return {first, last};
}

/// y[i, j] = Σ over the four elements of x around (source(i), source(j)) of weight · x. Overwrites.
template <class T>
void resize_bilinear_forward(CpuQueue&, const ResizeGeometry& g, const T* x, T* y);
template <class T>
void resize_bilinear_forward(CudaQueue&, const ResizeGeometry& g, const T* x, T* y);
/// gx[k, l] = Σ over the outputs that read it, and no others, of weight · gy, in a fixed order. Overwrites.
template <class T>
void resize_bilinear_backward(CpuQueue&, const ResizeGeometry& g, const T* gy, T* gx);
template <class T>
void resize_bilinear_backward(CudaQueue&, const ResizeGeometry& g, const T* gy, T* gx);

}  // namespace ssn::kernels
