#pragma once
#include <cstdint>

#include "runtime/queue.h"

namespace ssn::kernels {

/// One pass over n flat parameters: stochastic gradient descent with momentum.
///   d = g + decay · theta
///   velocity = momentum · velocity + d
///   theta −= lr · (nesterov ? d + momentum · velocity : velocity)
/// velocity starts at 0. Updates theta and velocity in place.
struct SgdStep {
  double lr, momentum, decay;
  bool nesterov;
};
template <class T>
void sgd(CpuQueue&, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta);
template <class T>
void sgd(CudaQueue&, std::int64_t n, const SgdStep& step, const T* g, T* velocity, T* theta);

}  // namespace ssn::kernels
