#pragma once
#include "kernels/pool.h"
#include "runtime/hd.h"

// Which elements a pooling window covers, and which windows cover an element: shared by the CPU and CUDA.
namespace ssn::kernels {

/// [begin, end). 32 bits suffice (see PoolGeometry), and a GPU divides them several times as fast.
struct WindowRange {
  int begin, end;
};

/// What window `out` covers of axis 0 or 1, which has `size` elements.
SSN_HD inline WindowRange window(const PoolGeometry& g, int axis, std::int64_t size, int out) {
  const int begin = out * static_cast<int>(g.stride[axis]) - static_cast<int>(g.padding[axis]);
  const int end = begin + static_cast<int>(g.kernel[axis]), most = static_cast<int>(size);
  return {begin < 0 ? 0 : begin, end < most ? end : most};
}

/// The windows, of `outs`, that cover element `in` of an axis.
SSN_HD inline WindowRange windows_over(const PoolGeometry& g, int axis, std::int64_t outs, int in) {
  const int stride = static_cast<int>(g.stride[axis]), last = in + static_cast<int>(g.padding[axis]);
  const int first = last - static_cast<int>(g.kernel[axis]) + 1;
  const int end = last / stride + 1, most = static_cast<int>(outs);
  return {first <= 0 ? 0 : (first + stride - 1) / stride, end < most ? end : most};
}

/// What an average's elements are multiplied by.
template <class T>
SSN_HD inline T window_share(const PoolGeometry& g, bool count_padding, WindowRange rows, WindowRange cols) {
  const std::int64_t area =
      count_padding ? g.kernel[0] * g.kernel[1] : (rows.end - rows.begin) * (cols.end - cols.begin);
  return T(1) / static_cast<T>(area);
}

}  // namespace ssn::kernels
