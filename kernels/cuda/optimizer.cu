#include "kernels/optimizer.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/functors.h"

namespace ssn::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread owns N neighbouring parameters.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sgd_step(std::int64_t packs, SgdRule<T> rule, const T* g, T* velocity, T* theta) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= packs * N) return;
  const Pack<T, N> d = Pack<T, N>::load(g + i);
  Pack<T, N> v = Pack<T, N>::load(velocity + i), t = Pack<T, N>::load(theta + i);
#pragma unroll
  for (int e = 0; e < N; ++e) rule(d[e], v[e], t[e]);
  v.store(velocity + i);
  t.store(theta + i);
}

template <int N, class T>
void launch_sgd(CudaQueue& q, std::int64_t packs, const SgdRule<T>& rule, const T* g, T* velocity, T* theta) {
  if (packs == 0) return;
  launch(q, "sgd", sgd_step<T, N>, blocks_for(packs, kThreads), kThreads, 0, packs, rule, g, velocity, theta);
}

}  // namespace

template <class T>
void sgd(CudaQueue& q, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta) {
  const SgdRule<T> rule{T(step.lr), T(step.momentum), T(step.decay), step.nesterov};
  constexpr int N = kPack<T>;
  const bool aligned = aligned16(g) && aligned16(velocity) && aligned16(theta);
  const std::int64_t packs = aligned ? n / N : 0, rest = packs * N;
  launch_sgd<N>(q, packs, rule, g, velocity, theta);
  launch_sgd<1>(q, n - rest, rule, g + rest, velocity + rest, theta + rest);
}
template void sgd<float>(CudaQueue&, std::int64_t, const SgdStep&, const float*, float*, float*);
template void sgd<double>(CudaQueue&, std::int64_t, const SgdStep&, const double*, double*, double*);

}  // namespace ssn::kernels
