#pragma once
#include "layers/layer.h"

namespace ssn {

/// Batch normalisation over the last axis, with an activation fused behind it. Bias starts at 0.
class BatchNorm {
 public:
  struct Options {
    double initial_gain = 1, eps = 1e-5;
    double momentum = 0.1;  // running = (1 − momentum) running + momentum batch
  };
  BatchNorm(const Scope& scope, std::int64_t channels, const Options& options);
  BatchNorm(const Scope& scope, std::int64_t channels) : BatchNorm(scope, channels, Options()) {}
  Var operator()(const Var& x, const Pass& pass, Activation activation) const {
    return (*this)(std::span(&x, 1), pass, activation);
  }
  /// Of several inputs put together along the last axis, which is not done first.
  Var operator()(std::span<const Var> xs, const Pass& pass, Activation activation) const {
    return batch_norm(xs, gain_, bias_, running_mean_, running_var_,
                      {.eps = options_.eps,
                       .momentum = options_.momentum,
                       .training = pass.training,
                       .activation = activation});
  }

 private:
  Options options_;
  Var gain_, bias_;
  Tensor running_mean_, running_var_;
};

/// Layer normalisation over the last axis. No weight decay, as BERT is trained.
class LayerNorm {
 public:
  LayerNorm(const Scope& scope, std::int64_t width, double eps);
  Var operator()(const Var& x) const { return layer_norm(x, gain_, bias_, eps_); }
  /// Of x + r.
  Var of_sum(const Var& x, const Var& r) const { return add_layer_norm(x, r, gain_, bias_, eps_); }

 private:
  Var gain_, bias_;
  double eps_;
};

}  // namespace ssn
