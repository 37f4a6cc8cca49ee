#include "kernels/weight_format.h"

#include "runtime/cuda/launch.cuh"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns the taps of one channel of one output, which are side by side in the weight: what a warp
/// does not need of a line at once it finds in the cache a tap later. Between (o, c, taps) and (o, taps, c);
/// `last`: to the latter.
template <class From, class To, bool last>
__global__ void __launch_bounds__(kThreads)
    reorder(std::int64_t filters, std::int64_t c, std::int64_t taps, const From* from, To* to) {
  const std::int64_t filter = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (filter >= filters) return;
  const std::int64_t first = filter * taps, spread = filter / c * taps * c + filter % c;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t beside = first + tap, apart = spread + tap * c;
    store(to[last ? apart : beside], from[last ? beside : apart]);
  }
}

}  // namespace

template <class From, class To>
void to_channels_last(CudaQueue& q, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                      To* to) {
  launch(q, "weight_format", reorder<From, To, true>, blocks_for(o * c, kThreads), kThreads, 0, o * c, c,
         taps, from, to);
}
template <class From, class To>
void from_channels_last(CudaQueue& q, std::int64_t o, std::int64_t c, std::int64_t taps, const From* from,
                        To* to) {
  launch(q, "weight_format", reorder<From, To, false>, blocks_for(o * c, kThreads), kThreads, 0, o * c, c,
         taps, from, to);
}

using Size = std::int64_t;
template void to_channels_last(CudaQueue&, Size, Size, Size, const float*, float*);
template void to_channels_last(CudaQueue&, Size, Size, Size, const float*, bf16*);
template void to_channels_last(CudaQueue&, Size, Size, Size, const bf16*, float*);
template void to_channels_last(CudaQueue&, Size, Size, Size, const bf16*, bf16*);
template void to_channels_last(CudaQueue&, Size, Size, Size, const double*, double*);
template void from_channels_last(CudaQueue&, Size, Size, Size, const float*, float*);
template void from_channels_last(CudaQueue&, Size, Size, Size, const float*, bf16*);
template void from_channels_last(CudaQueue&, Size, Size, Size, const bf16*, float*);
template void from_channels_last(CudaQueue&, Size, Size, Size, const bf16*, bf16*);
template void from_channels_last(CudaQueue&, Size, Size, Size, const double*, double*);

}  // namespace ssn::kernels
