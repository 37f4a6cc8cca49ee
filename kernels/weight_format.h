#pragma once
#include <cstdint>

#include "runtime/bf16.h"
#include "runtime/queue.h"

namespace ssn::kernels {

/// How a layer wants its weight to lie in memory. The weight's gradient has the same order and is never bf16:
/// it is a sum.
struct WeightFormat {
  bool half = false;           // bf16, else the parameters' type
  bool channels_last = false;  // a convolution's (o, kh, kw, i), else as in theta (o, i, kh, kw)

  bool operator==(const WeightFormat&) const = default;
};

/// to (o, taps, c) from (o, c, taps), each element converted. Overwrites. f32 and bf16 each from the other
/// and from itself; f64 from itself.
template <class From, class To>
void to_channels_last(CpuQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from, To* to);
template <class From, class To>
void to_channels_last(CudaQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                      To* to);
/// The reverse.
template <class From, class To>
void from_channels_last(CpuQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                        To* to);
template <class From, class To>
void from_channels_last(CudaQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                        To* to);

}  // namespace ssn::kernels
