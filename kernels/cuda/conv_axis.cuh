#pragma once
#include <cuda_runtime.h>

#include "kernels/conv.h"

namespace ssn::kernels {

/// One of a convolution's two axes: which pixels of x go with which of y.
struct ConvAxis {
  int x, y, taps, stride, padding, dilation;  // x and y: how many there are

  ConvAxis(const ConvGeometry& g, int i)
      : x(static_cast<int>(i ? g.w : g.h)),
        y(static_cast<int>(i ? g.out_w() : g.out_h())),
        taps(static_cast<int>(i ? g.kw : g.kh)),
        stride(static_cast<int>(g.stride[i])),
        padding(static_cast<int>(g.padding[i])),
        dilation(static_cast<int>(g.dilation[i])) {}

  /// The place in x that a place in y takes by a tap; −1: none, it is in the padding.
  __device__ int x_of(int at, int tap) const {
    const int from = at * stride - padding + tap * dilation;
    return from >= 0 && from < x ? from : -1;
  }
  /// The place in y that takes a place in x by a tap; −1: none.
  __device__ int y_of(int at, int tap) const {
    const int to = at + padding - tap * dilation;
    if (stride == 1) return to >= 0 && to < y ? to : -1;
    return to >= 0 && to % stride == 0 && to / stride < y ? to / stride : -1;
  }
};

}  // namespace ssn::kernels
