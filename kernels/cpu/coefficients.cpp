#include <algorithm>

#include "kernels/coefficients_terms.h"

// A few hundred numbers a layer: one thread is enough.
namespace ssn::kernels {

template <class T>
void coefficients_forward(CpuQueue&, std::span<const LayerCoefficients<T>> layers, void*) {
  for (const auto& l : layers) {
    double most = 0, sum = 0;
    for (std::int64_t k = 0; k < l.count; ++k) {
      const double z = coefficient_logit(l, k);
      most = k ? std::max(most, z) : z;
      if (!l.softmax) l.alpha[k] = static_cast<T>(z);
    }
    if (!l.softmax) continue;
    for (std::int64_t k = 0; k < l.count; ++k) sum += std::exp(coefficient_logit(l, k) - most);
    for (std::int64_t k = 0; k < l.count; ++k)
      l.alpha[k] = static_cast<T>(std::exp(coefficient_logit(l, k) - most) / sum);
  }
}

template <class T>
void coefficients_backward(CpuQueue&, std::span<const LayerCoefficients<T>> layers, void*) {
  for (const auto& l : layers) {
    const double mean = coefficient_mean_grad(l);
    for (std::int64_t e = 0; e < l.embedding; ++e) add_embedding_grad(l, mean, e);
    for (std::int64_t k = 0; k < l.count; ++k) add_bias_grad(l, mean, k);
  }
}

template void coefficients_forward(CpuQueue&, std::span<const LayerCoefficients<float>>, void*);
template void coefficients_forward(CpuQueue&, std::span<const LayerCoefficients<double>>, void*);
template void coefficients_backward(CpuQueue&, std::span<const LayerCoefficients<float>>, void*);
template void coefficients_backward(CpuQueue&, std::span<const LayerCoefficients<double>>, void*);

}  // namespace ssn::kernels
