#pragma once
#include <cmath>

#include "kernels/optimizer.h"
#include "runtime/hd.h"

// The optimizers' formulas for one parameter (kernels/optimizer.h states them), which the CPU and the CUDA
// kernels share. A rule updates its kStates states and theta.
namespace ssn::kernels {

/// Whether the step changes anything.
SSN_HD inline bool counts(const StepValues& step) {
  return std::isfinite(step.norm);
}

template <class T>
struct SgdRule {
  static constexpr int kStates = 1;
  T lr, scale, decay, momentum;
  T of_d, of_velocity;  // shares in the step: a choice would be a branch in the loop

  SSN_HD SgdRule(const SgdRates& r, const StepValues& s)
      : lr(T(s.lr)),
        scale(T(s.scale)),
        decay(T(r.decay)),
        momentum(T(r.momentum)),
        of_d(r.nesterov ? 1 : 0),
        of_velocity(r.nesterov ? momentum : T(1)) {}

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

  SSN_HD Moments(const AdamRates& r, const StepValues& s)
      : beta1(T(r.beta1)),
        rest1(T(1 - r.beta1)),
        beta2(T(r.beta2)),
        rest2(T(1 - r.beta2)),
        correction1(T(s.correction1)),
        correction2(T(s.correction2)),
        epsilon(T(r.epsilon)) {}

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

  SSN_HD AdamRule(const AdamRates& r, const StepValues& s)
      : moments(r, s),
        lr(T(s.lr)),
        scale(T(s.scale)),
        coupled(T(r.decoupled ? 0 : r.decay)),
        decoupled(T(r.decoupled ? r.decay : 0)) {}

  SSN_HD void operator()(T g, T& m, T& v, T& theta) const {
    moments.update(std::fma(coupled, theta, scale * g), m, v);
    theta = std::fma(-lr, std::fma(decoupled, theta, moments.step(m, v)), theta);
  }
};

template <class T>
struct RmsPropRule {
  static constexpr int kStates = 2;
  T lr, scale, decay, beta2, rest2, epsilon, momentum;

  SSN_HD RmsPropRule(const RmsPropRates& r, const StepValues& s)
      : lr(T(s.lr)),
        scale(T(s.scale)),
        decay(T(r.decay)),
        beta2(T(r.beta2)),
        rest2(T(1 - r.beta2)),
        epsilon(T(r.epsilon)),
        momentum(T(r.momentum)) {}

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

  SSN_HD LambRule(const AdamRates& r, const StepValues& s, const LambChunk& chunk)
      : moments(r, s), scale(T(s.scale)), decay(T(chunk.decays ? r.decay : 0)) {}

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

  /// `decay` is the largest.
  SSN_HD AverageRule(double decay, const StepValues& s) {
    const double early = (1 + s.step) / (10 + s.step);
    rest = T(1 - (decay < early ? decay : early));
  }
  SSN_HD void operator()(T x, T& average) const { average = std::fma(rest, x - average, average); }
};

SSN_HD inline void clip_step(double most, double squares, StepValues& step) {
  step.norm = step.scale * std::sqrt(squares);
  if (most > 0 && step.norm > most) step.scale *= most / step.norm;
}

}  // namespace ssn::kernels
