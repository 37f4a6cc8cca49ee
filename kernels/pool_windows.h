#pragma once
#include <cstdint>

#include "kernels/pool.h"
#include "runtime/hd.h"

// Which elements a pooling window covers, for the CPU and the CUDA kernels alike.
namespace ssn::kernels {

struct PoolRange {
  std::int64_t begin, end;

  SSN_HD std::int64_t size() const { return end - begin; }
};

/// The elements of an axis of `size` that window `out` covers.
SSN_HD inline PoolRange window(const PoolGeometry& g, int axis, std::int64_t size, std::int64_t out) {
  const std::int64_t begin = out * g.stride[axis] - g.padding[axis], end = begin + g.kernel[axis];
  return {begin < 0 ? 0 : begin, end < size ? end : size};
}

/// The windows, of `outs`, that cover element `in` of an axis.
SSN_HD inline PoolRange windows_over(const PoolGeometry& g, int axis, std::int64_t outs, std::int64_t in) {
  const std::int64_t last = in + g.padding[axis], first = last - g.kernel[axis] + 1;
  const std::int64_t end = last / g.stride[axis] + 1;
  return {first <= 0 ? 0 : (first + g.stride[axis] - 1) / g.stride[axis], end < outs ? end : outs};
}

/// 1 / the window's divisor.
template <class T>
SSN_HD T share_of(const PoolGeometry& g, bool count_padding, PoolRange rows, PoolRange cols) {
  return T(1) / static_cast<T>(count_padding ? g.kernel[0] * g.kernel[1] : rows.size() * cols.size());
}

}  // namespace ssn::kernels
