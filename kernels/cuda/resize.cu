#include "kernels/resize.h"
#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns an element of y.
template <class T>
__global__ void __launch_bounds__(kThreads) resize_forward(ResizeGeometry g, const T* x, T* y) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= g.n * g.out_h * g.out_w * g.c) return;
  const std::int64_t ch = at % g.c, j = at / g.c % g.out_w, row = at / g.c / g.out_w;
  const double v = resize_source(row % g.out_h, g.h, g.out_h), u = resize_source(j, g.w, g.out_w);
  const auto top = static_cast<std::int64_t>(v), left = static_cast<std::int64_t>(u);
  const std::int64_t bottom = top + 1 < g.h ? top + 1 : top, right = left + 1 < g.w ? left + 1 : left;
  const T down = static_cast<T>(v - static_cast<double>(top)),
          across = static_cast<T>(u - static_cast<double>(left));
  const T* image = x + row / g.out_h * g.h * g.w * g.c + ch;
  const auto in_column = [&](std::int64_t l) {
    const T a = image[(top * g.w + l) * g.c], b = image[(bottom * g.w + l) * g.c];
    return fma(down, b - a, a);
  };
  const T a = in_column(left), b = in_column(right);
  y[at] = fma(across, b - a, a);
}

/// A thread owns an element of gx.
template <class T>
__global__ void __launch_bounds__(kThreads) resize_backward(ResizeGeometry g, const T* gy, T* gx) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= g.n * g.h * g.w * g.c) return;
  const std::int64_t ch = at % g.c, l = at / g.c % g.w, k = at / g.c / g.w % g.h,
                     image = at / g.c / g.w / g.h;
  const ResizeRange rows = resize_readers(k, g.h, g.out_h), cols = resize_readers(l, g.w, g.out_w);
  double sum = 0;
  for (std::int64_t i = rows.first; i < rows.last; ++i) {
    const T* from = gy + (image * g.out_h + i) * g.out_w * g.c + ch;
    double of_row = 0;
    for (std::int64_t j = cols.first; j < cols.last; ++j)
      of_row += resize_weight(resize_source(j, g.w, g.out_w), l) * static_cast<double>(from[j * g.c]);
    sum += resize_weight(resize_source(i, g.h, g.out_h), k) * of_row;
  }
  gx[at] = static_cast<T>(sum);
}

}  // namespace

template <class T>
void resize_bilinear_forward(CudaQueue& q, const ResizeGeometry& g, const T* x, T* y) {
  launch(q, "resize_bilinear", resize_forward<T>, blocks_for(g.n * g.out_h * g.out_w * g.c, kThreads),
         kThreads, 0, g, x, y);
}
template <class T>
void resize_bilinear_backward(CudaQueue& q, const ResizeGeometry& g, const T* gy, T* gx) {
  launch(q, "resize_bilinear", resize_backward<T>, blocks_for(g.n * g.h * g.w * g.c, kThreads), kThreads, 0,
         g, gy, gx);
}

template void resize_bilinear_forward(CudaQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_forward(CudaQueue&, const ResizeGeometry&, const double*, double*);
template void resize_bilinear_backward(CudaQueue&, const ResizeGeometry&, const float*, float*);
template void resize_bilinear_backward(CudaQueue&, const ResizeGeometry&, const double*, double*);

}  // namespace ssn::kernels
