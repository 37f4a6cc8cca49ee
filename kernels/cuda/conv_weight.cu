#include "kernels/cuda/conv_weight.h"

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

template <class T>
void channels_last(CudaQueue& q, std::int64_t o, std::int64_t c, std::int64_t taps, const Wider<T>* from,
                   T* to) {
  launch(q, "convolution's weight", reorder<Wider<T>, T, true>, blocks_for(o * c, kThreads), kThreads, 0,
         o * c, c, taps, from, to);
}
template <class T>
void channels_first(CudaQueue& q, std::int64_t o, std::int64_t c, std::int64_t taps, const T* from,
                    Wider<T>* to) {
  launch(q, "convolution's weight", reorder<T, Wider<T>, false>, blocks_for(o * c, kThreads), kThreads, 0,
         o * c, c, taps, from, to);
}

template void channels_last<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*, bf16*);
template void channels_last<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                   float*);
template void channels_last<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                    double*);
template void channels_first<bf16>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const bf16*, float*);
template void channels_first<float>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const float*,
                                    float*);
template void channels_first<double>(CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const double*,
                                     double*);

}  // namespace ssn::kernels
