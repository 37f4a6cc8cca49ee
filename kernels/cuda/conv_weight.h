#pragma once
#include "kernels/conv.h"

namespace ssn::kernels {

/// to (o, taps, c), of T, from a weight (o, c, taps): the channels last, as cuDNN's tensor-core kernels want
/// them, or, with o = 1, the filters of a depthwise convolution.
template <class T>
void channels_last(CudaQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const Wider<T>* from,
                   T* to);
/// The reverse, of a weight's gradient.
template <class T>
void channels_first(CudaQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const T* from,
                    Wider<T>* to);

}  // namespace ssn::kernels
