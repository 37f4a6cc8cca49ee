#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/functors.h"

namespace ssn {

/// What follows a norm in the same pass: max(z, 0), or z σ(z) (Ramachandran et al., 2017: swish).
enum class Activation : std::uint8_t { none, relu, silu };

}  // namespace ssn

namespace ssn::kernels {

/// σ(z) = 1 / (1 + e^−z)
template <class T>
SSN_HD inline T sigmoid(T z) {
  const T e = exp_below_0(-std::abs(z));
  return (z < 0 ? e : T(1)) / (1 + e);
}
/// The gradient of y = σ(z), from y.
template <class T>
SSN_HD inline T sigmoid_gradient(T y, T g) {
  return g * y * (1 - y);
}
/// z σ(z)
template <class T>
SSN_HD inline T silu(T z) {
  return z * sigmoid(z);
}
template <class T>
SSN_HD inline T silu_gradient(T z, T g) {
  const T s = sigmoid(z);
  return g * s * std::fma(z, 1 - s, T(1));
}

template <Activation kActivation, class T>
SSN_HD inline T activate(T z) {
  if constexpr (kActivation == Activation::relu) return relu(z);
  if constexpr (kActivation == Activation::silu) return silu(z);
  return z;
}
/// The gradient of z, from that of activate(z).
template <Activation kActivation, class T>
SSN_HD inline T activation_gradient(T z, T g) {
  if constexpr (kActivation == Activation::relu) return relu_gradient(z, g);
  if constexpr (kActivation == Activation::silu) return silu_gradient(z, g);
  return g;
}

/// f(integral_constant of the activation)
template <class F>
auto with_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::relu: return f(std::integral_constant<Activation, Activation::relu>{});
    case Activation::silu: return f(std::integral_constant<Activation, Activation::silu>{});
    default: return f(std::integral_constant<Activation, Activation::none>{});
  }
}

}  // namespace ssn::kernels
