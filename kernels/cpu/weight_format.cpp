#include "kernels/weight_format.h"

#include <algorithm>

#include "runtime/parallel.h"

namespace ssn::kernels {
namespace {

/// f(place in (o, c, taps), place in (o, taps, c)) for all elements.
template <class F>
void each_place(std::int64_t o, std::int64_t c, std::int64_t taps, F&& f) {
  const std::int64_t filter = std::max<std::int64_t>(1, c * taps);
  parallel_for(o, std::max<std::int64_t>(1, 4096 / filter), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < c; ++j)
        for (std::int64_t tap = 0; tap < taps; ++tap) f((i * c + j) * taps + tap, (i * taps + tap) * c + j);
  });
}

}  // namespace

template <class From, class To>
void to_channels_last(CpuQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                      To* to) {
  each_place(o, c, taps, [&](std::int64_t first, std::int64_t last) { store(to[last], from[first]); });
}
template <class From, class To>
void from_channels_last(CpuQueue&, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                        To* to) {
  each_place(o, c, taps, [&](std::int64_t first, std::int64_t last) { store(to[first], from[last]); });
}

using Size = std::int64_t;
template void to_channels_last(CpuQueue&, Size, Size, Size, const float*, float*);
template void to_channels_last(CpuQueue&, Size, Size, Size, const float*, bf16*);
template void to_channels_last(CpuQueue&, Size, Size, Size, const bf16*, float*);
template void to_channels_last(CpuQueue&, Size, Size, Size, const bf16*, bf16*);
template void to_channels_last(CpuQueue&, Size, Size, Size, const double*, double*);
template void from_channels_last(CpuQueue&, Size, Size, Size, const float*, float*);
template void from_channels_last(CpuQueue&, Size, Size, Size, const float*, bf16*);
template void from_channels_last(CpuQueue&, Size, Size, Size, const bf16*, float*);
template void from_channels_last(CpuQueue&, Size, Size, Size, const bf16*, bf16*);
template void from_channels_last(CpuQueue&, Size, Size, Size, const double*, double*);

}  // namespace ssn::kernels
