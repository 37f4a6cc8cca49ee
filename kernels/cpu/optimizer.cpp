#include "kernels/optimizer.h"

#include <type_traits>
#include "kernels/functors.h"

#include "runtime/parallel.h"

namespace ssn::kernels {

template <class T>
void sgd(CpuQueue&, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta) {
  const auto run = [&](auto nesterov) {  // a constant, so that the loop has no branch
    const SgdRule<T> rule{T(step.lr), T(step.momentum), T(step.decay), nesterov};
    parallel_for(n, 8192, [&](std::int64_t begin, std::int64_t end) {
      const SgdRule<T> local{rule.lr, rule.momentum, rule.decay, nesterov};
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) local(g[i], velocity[i], theta[i]);
    });
  };
  step.nesterov ? run(std::true_type{}) : run(std::false_type{});
}
template void sgd<float>(CpuQueue&, std::int64_t, const SgdStep&, const float*, float*, float*);
template void sgd<double>(CpuQueue&, std::int64_t, const SgdStep&, const double*, double*, double*);

}  // namespace ssn::kernels
