#pragma once
#include <cmath>

#include "kernels/optimizer.h"
#include "runtime/hd.h"

// The optimizers' formulas for one parameter (kernels/optimizer.h states them), which the CPU and the CUDA
// kernels share. A rule updates its kStates states and theta.
namespace ssn::kernels {

template <class T>
struct SgdRule {
  static constexpr int kStates = 1;
  T lr, scale, decay, momentum;
  T of_d, of_velocity;  // shares in the step: a choice would be a branch in the loop

  explicit SgdRule(const SgdStep& s)
      : lr(T(s.lr)),
        scale(T(s.scale)),
        decay(T(s.decay)),
        momentum(T(s.momentum)),
        of_d(s.nesterov ? 1 : 0),
        of_velocity(s.nesterov ? momentum : T(1)) {}

  SSN_HD void operator()(T g, T& velocity, T& theta) const {
    const T d = std::fma(decay, theta, scale * g);
    velocity = std::fma(momentum, velocity, d);
    theta = std::fma(-lr, std::fma(of_velocity, velocity, of_d * d), theta);
  }
};

/// Adam's moments, and the step that they give.
template <class T>
struct Moments {
  T beta1, rest1, beta2, rest2, correction1, correction2, epsilon;

  explicit Moments(const AdamStep& s)
      : beta1(T(s.beta1)),
        rest1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        rest2(T(1 - s.beta2)),
        correction1(T(s.correction1)),
        correction2(T(s.correction2)),
        epsilon(T(s.epsilon)) {}

  SSN_HD void update(T d, T& m, T& v) const {
    m = std::fma(rest1, d, beta1 * m);
    v = std::fma(rest2 * d, d, beta2 * v);
  }
  SSN_HD T step(T m, T v) const { return correction1 * m / (std::sqrt(correction2 * v) + epsilon); }
};

template <class T>
struct AdamRule {
  static constexpr int kStates = 2;
  Moments<T> moments;
  T lr, scale, coupled, decoupled;  // of the decay, one is 0

  explicit AdamRule(const AdamStep& s)
      : moments(s),
        lr(T(s.lr)),
        scale(T(s.scale)),
        coupled(T(s.decoupled ? 0 : s.decay)),
        decoupled(T(s.decoupled ? s.decay : 0)) {}

  SSN_HD void operator()(T g, T& m, T& v, T& theta) const {
    moments.update(std::fma(coupled, theta, scale * g), m, v);
    theta = std::fma(-lr, std::fma(decoupled, theta, moments.step(m, v)), theta);
  }
};

template <class T>
struct RmsPropRule {
  static constexpr int kStates = 2;
  T lr, scale, decay, beta2, rest2, epsilon, momentum;

  explicit RmsPropRule(const RmsPropStep& s)
      : lr(T(s.lr)),
        scale(T(s.scale)),
        decay(T(s.decay)),
        beta2(T(s.beta2)),
        rest2(T(1 - s.beta2)),
        epsilon(T(s.epsilon)),
        momentum(T(s.momentum)) {}

  SSN_HD void operator()(T g, T& square, T& velocity, T& theta) const {
    const T d = std::fma(decay, theta, scale * g);
    square = std::fma(rest2 * d, d, beta2 * square);
    velocity = std::fma(momentum, velocity, lr * d / std::sqrt(square + epsilon));
    theta -= velocity;
  }
};

/// The first of LAMB's passes returns u, the second takes it.
template <class T>
struct LambRule {
  Moments<T> moments;
  T scale, decay;

  explicit LambRule(const AdamStep& s) : moments(s), scale(T(s.scale)), decay(T(s.decay)) {}

  SSN_HD LambRule of(const LambChunk& chunk) const {
    LambRule rule = *this;
    if (chunk.decays == 0) rule.decay = 0;
    return rule;
  }

  SSN_HD T update(T g, T& m, T& v, T theta) const {
    moments.update(scale * g, m, v);
    return direction(m, v, theta);
  }
  SSN_HD T direction(T m, T v, T theta) const { return std::fma(decay, theta, moments.step(m, v)); }
};

SSN_HD inline double trust_ratio(double theta_squares, double u_squares) {
  return theta_squares > 0 && u_squares > 0 ? std::sqrt(theta_squares / u_squares) : 1;
}

template <class T>
struct AverageRule {
  static constexpr int kStates = 0;
  T rest;

  SSN_HD void operator()(T x, T& average) const { average = std::fma(rest, x - average, average); }
};

}  // namespace ssn::kernels
