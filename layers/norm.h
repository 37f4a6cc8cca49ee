#pragma once
#include "layers/layer.h"

namespace ssn {

/// Batch normalisation over the last axis, optionally with ReLU fused behind it. Bias starts at 0.
class BatchNorm {
 public:
  BatchNorm(const Scope& scope, std::int64_t channels, double initial_gain = 1);
  Var operator()(const Var& x, const Pass& pass, bool relu) const {
    return batch_norm(x, gain_, bias_, running_mean_, running_var_,
                      {.training = pass.training, .relu = relu});
  }

 private:
  Var gain_, bias_;
  Tensor running_mean_, running_var_;
};

}  // namespace ssn
