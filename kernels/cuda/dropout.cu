#include "kernels/cuda/columns.cuh"
#include "kernels/dropout.h"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns one pack, or one of the elements behind the last full pack. Of a unit of one element a pack
/// mostly needs one draw.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(std::int64_t n, Random random, std::int64_t first, std::int64_t unit,
                   std::uint32_t threshold, Wider<T> scale, const T* x, T* y) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  const std::uint64_t seed = random.seed(), stream = random.stream();
  PhiloxDraw draw{};
  std::int64_t drawn = -1;
  const auto kept = [&](std::int64_t i) {
    const std::int64_t u = unit == 1 ? first + i : (first + i) / unit;
    if (u / 4 != drawn) {
      drawn = u / 4;
      draw = philox(seed, stream, static_cast<std::uint64_t>(drawn));
    }
    const std::uint32_t low = u % 2 ? draw.v[1] : draw.v[0], high = u % 2 ? draw.v[3] : draw.v[2];
    return (u % 4 < 2 ? low : high) >= threshold;
  };
  if (thread < packs) {
    auto v = Values<Wider<T>, V>::load(x + thread * V);
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = kept_if(kept(thread * V + k), v[k] * scale);
    v.store(y + thread * V);
  } else if (const std::int64_t at = packs * V + (thread - packs); at < n) {
    store(y[at], kept_if(kept(at), x[at] * scale));
  }
}

}  // namespace

template <class T>
void dropout(CudaQueue& q, std::int64_t n, const DropoutRule& rule, const T* x, T* y) {
  if (n == 0) return;
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, "dropout", dropout_kernel<T, v.value>, blocks_for(n / v.value + n % v.value, kThreads),
               kThreads, 0, n, rule.random, rule.first, rule.unit, rule.threshold(), 1 / (1 - rule.rate), x,
               y);
      },
      x, y);
}

template void dropout<bf16>(CudaQueue&, std::int64_t, const DropoutRule&, const bf16*, bf16*);
template void dropout<float>(CudaQueue&, std::int64_t, const DropoutRule&, const float*, float*);
template void dropout<double>(CudaQueue&, std::int64_t, const DropoutRule&, const double*, double*);

}  // namespace ssn::kernels
