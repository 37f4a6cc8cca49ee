#pragma once
#include <cmath>

#include "runtime/hd.h"

// Formulas that the CPU and the CUDA kernels share, so that both decide and round alike.
namespace ssn::kernels {

/// max(z, 0); a NaN stays a NaN.
template <class T>
SSN_HD inline T relu(T z) {
  return z < 0 ? T(0) : z;
}

/// g where z > 0, else 0.
template <class T>
SSN_HD inline T relu_gradient(T z, T g) {
  return z > 0 ? g : T(0);
}

/// A channel of a batch normalisation: z = (x − mean) · scale + bias with scale = gain / sqrt(var + eps).
template <class T>
struct NormChannel {
  T mean, scale, bias;

  SSN_HD T operator()(T x) const { return std::fma(x - mean, scale, bias); }
};

/// Its gradient: with gz the gradient of z, sum = Σ gz and dot = Σ gz (x − mean) over the channel's rows,
///   gx = scale · (gz − gz_mean + (x − mean) · slope)
/// gz_mean and slope are what the batch's own mean and variance carry; 0 where these are constants.
template <class T>
struct NormGradient {
  T gz_mean, slope;

  SSN_HD static NormGradient of(double rows, double rstd, double sum, double dot) {
    return {static_cast<T>(sum / rows), static_cast<T>(-rstd * rstd * dot / rows)};
  }
  SSN_HD T operator()(T gz, T scale, T centred) const {
    return scale * std::fma(centred, slope, gz - gz_mean);
  }
};

/// One parameter's step of stochastic gradient descent (kernels/optimizer.h has the formula).
template <class T>
struct SgdRule {
  T lr, momentum, decay;
  bool nesterov;

  SSN_HD void operator()(T g, T& velocity, T& theta) const {
    const T d = std::fma(decay, theta, g);
    velocity = std::fma(momentum, velocity, d);
    theta = std::fma(-lr, nesterov ? std::fma(momentum, velocity, d) : velocity, theta);
  }
};

}  // namespace ssn::kernels
