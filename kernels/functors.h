#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/hd.h"

// Formulas that the CPU and the CUDA kernels share, so that both decide and round alike.
namespace ssn::kernels {

/// max(z, 0); a NaN stays a NaN.
template <class T>
SSN_HD inline T relu(T z) {
  return z < 0 ? T(0) : z;
}

/// value if `keep`, else 0. By a mask: from a choice compilers make a conditional load of `value`, which
/// takes several times as long as an ordinary one.
template <class T>
SSN_HD inline T kept_if(bool keep, T value) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  return std::bit_cast<T>(std::bit_cast<Bits>(value) & -static_cast<Bits>(keep));
}

/// e^x of x <= 0, to 1e-7 of it; 0 below −87. Without branches and calls, so that loops over it vectorise;
/// in f64, where speed does not matter, the C library's.
[[gnu::always_inline]] SSN_HD inline float exp_below_0(float x) {
  constexpr float kRound = 12582912;  // 1.5 · 2^23: what is added to it is rounded to an integer
  const float clamped = x < -87 ? -87 : x;
  const float shifted = std::fma(clamped, 1.44269504f, kRound), n = shifted - kRound;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, clamped));  // x − n log 2
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p * r, r, r) + 1;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127) << 23);  // 2^n
  return kept_if(!(x < -87), p * power);
}
SSN_HD inline double exp_below_0(double x) {
  return std::exp(x);
}

/// The normal distribution and its density at z.
template <class T>
struct Normal {
  T below, density;
};
/// `below` to 1e-7 (Abramowitz and Stegun, 7.1.26).
[[gnu::always_inline]] SSN_HD inline Normal<float> normal_at(float z) {
  const float power = exp_below_0(-0.5f * z * z), t = 1 / std::fma(0.2316418882f, std::abs(z), 1.0f);
  float p = 0.5307027145f;
  p = std::fma(p, t, -0.7265760135f);
  p = std::fma(p, t, 0.7107068705f);
  p = std::fma(p, t, -0.142248368f);
  p = std::fma(p, t, 0.127414796f);
  const float tail = p * t * power;
  return {z < 0 ? tail : 1 - tail, 0.3989422804f * power};
}
SSN_HD inline Normal<double> normal_at(double z) {
  return {0.5 * std::erfc(-0.70710678118654752440 * z), 0.39894228040143267794 * std::exp(-0.5 * z * z)};
}

/// g where z > 0, else 0.
template <class T>
SSN_HD inline T relu_gradient(T z, T g) {
  return kept_if(z > 0, g);
}

/// The gradient of y = tanh(x), from y.
template <class T>
SSN_HD inline T tanh_gradient(T y, T g) {
  return g * std::fma(-y, y, T(1));
}

/// A batch normalisation's z = (x − mean) · scale + bias, scale = gain / sqrt(var + eps).
template <class T>
SSN_HD inline T normalise(T x, T mean, T scale, T bias) {
  return std::fma(x - mean, scale, bias);
}

/// Its gradient: with gz the gradient of z, sum = Σ gz and dot = Σ gz (x − mean) over the channel's rows,
///   gx = scale · (gz − gz_mean + (x − mean) · slope)
///   gz_mean = sum / rows,   slope = −dot / (var + eps) / rows
/// The latter two are what the batch's own mean and variance carry; 0 where these are constants.
template <class T>
SSN_HD inline T normalise_gradient(T gz, T gz_mean, T centred, T slope, T scale) {
  return scale * std::fma(centred, slope, gz - gz_mean);
}

}  // namespace ssn::kernels
