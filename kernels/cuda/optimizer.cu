#include "kernels/optimizer.h"

#include "kernels/cuda/columns.cuh"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns one pack of parameters, or one of those behind the last full pack.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(std::int64_t n, SgdRule<T> rule, const T* g, T* velocity, T* theta) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, packs = n / V;
  if (i < packs) {
    const Pack<T, V> gradient = Pack<T, V>::load(g + i * V);
    Pack<T, V> v = Pack<T, V>::load(velocity + i * V), t = Pack<T, V>::load(theta + i * V);
#pragma unroll
    for (int k = 0; k < V; ++k) rule(gradient[k], v[k], t[k]);
    v.store(velocity + i * V);
    t.store(theta + i * V);
  } else if (const std::int64_t at = packs * V + (i - packs); at < n) {
    rule(g[at], velocity[at], theta[at]);
  }
}

}  // namespace

template <class T>
void sgd(CudaQueue& q, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta) {
  if (n == 0) return;
  const SgdRule<T> rule{T(step.lr), T(step.momentum), T(step.decay), step.nesterov};
  with_pack<T>(
      0,
      [&](auto v) {
        launch(q, "sgd", sgd_kernel<T, v.value>, blocks_for(n / v.value + n % v.value, kThreads), kThreads, 0,
               n, rule, g, velocity, theta);
      },
      g, velocity, theta);
}
template void sgd<float>(CudaQueue&, std::int64_t, const SgdStep&, const float*, float*, float*);
template void sgd<double>(CudaQueue&, std::int64_t, const SgdStep&, const double*, double*, double*);

}  // namespace ssn::kernels
