#pragma once
#include <cmath>

#include "kernels/coefficients.h"
#include "runtime/hd.h"

// The formulas of one layer's coefficients, for both devices.
namespace ssn::kernels {

/// z[k], accumulated in double.
template <class T>
SSN_HD double coefficient_logit(const LayerCoefficients<T>& l, std::int64_t k) {
  if (!l.projection) return static_cast<double>(l.phi[k]);
  double z = static_cast<double>(l.bias[k]);
  for (std::int64_t e = 0; e < l.embedding; ++e)
    z += static_cast<double>(l.projection[k * l.embedding + e]) * static_cast<double>(l.phi[e]);
  return z;
}

/// Σ_k alpha[k] · alpha_grad[k] under a softmax, else 0.
template <class T>
SSN_HD double coefficient_mean_grad(const LayerCoefficients<T>& l) {
  double mean = 0;
  for (std::int64_t k = 0; l.softmax && k < l.count; ++k)
    mean += static_cast<double>(l.alpha[k]) * static_cast<double>(l.alpha_grad[k]);
  return mean;
}
/// The gradient of z[k].
template <class T>
SSN_HD double coefficient_logit_grad(const LayerCoefficients<T>& l, double mean, std::int64_t k) {
  const double g = static_cast<double>(l.alpha_grad[k]);
  return l.softmax ? static_cast<double>(l.alpha[k]) * (g - mean) : g;
}

/// Adds a layer's part into the gradients of column e: phi[e], and W[:, e].
template <class T>
SSN_HD void add_embedding_grad(const LayerCoefficients<T>& l, double mean, std::int64_t e) {
  if (!l.projection) {
    if (l.phi_grad) l.phi_grad[e] += static_cast<T>(coefficient_logit_grad(l, mean, e));
    return;
  }
  double sum = 0;
  for (std::int64_t k = 0; k < l.count; ++k) {
    const double g = coefficient_logit_grad(l, mean, k);
    sum += static_cast<double>(l.projection[k * l.embedding + e]) * g;
    if (l.projection_grad)
      l.projection_grad[k * l.embedding + e] += static_cast<T>(g * static_cast<double>(l.phi[e]));
  }
  if (l.phi_grad) l.phi_grad[e] += static_cast<T>(sum);
}
/// Adds a layer's part into the gradient of b[k].
template <class T>
SSN_HD void add_bias_grad(const LayerCoefficients<T>& l, double mean, std::int64_t k) {
  if (l.bias_grad) l.bias_grad[k] += static_cast<T>(coefficient_logit_grad(l, mean, k));
}

}  // namespace ssn::kernels
