#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/functors.h"

// Functions without branches and calls, so that loops over them vectorise; in f64, where speed does not
// matter, the C library's.
namespace ssn::kernels {

/// The normal distribution and its density at z.
template <class T>
struct Normal {
  T below, density;
};
/// `below` to 1e-7 (Abramowitz and Stegun, 7.1.26).
[[gnu::always_inline]] inline Normal<float> normal_at(float z) {
  const float power = exp_below_0(-0.5f * z * z), t = 1 / std::fma(0.2316418882f, std::abs(z), 1.0f);
  float p = 0.5307027145f;
  p = std::fma(p, t, -0.7265760135f);
  p = std::fma(p, t, 0.7107068705f);
  p = std::fma(p, t, -0.142248368f);
  p = std::fma(p, t, 0.127414796f);
  const float tail = p * t * power;
  return {z < 0 ? tail : 1 - tail, 0.3989422804f * power};
}
inline Normal<double> normal_at(double z) {
  return {0.5 * std::erfc(-0.70710678118654752440 * z), 0.39894228040143267794 * std::exp(-0.5 * z * z)};
}

}  // namespace ssn::kernels
