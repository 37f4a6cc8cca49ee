#pragma once
#include "layers/layer.h"

namespace ssn {

/// y (rows, out) = x (rows, in) wᵀ + bias. The weight may be shared, the bias is the layer's own.
class Linear {
 public:
  Linear(const Scope& scope, std::int64_t in, std::int64_t out);
  Var operator()(const Var& x) const { return bias_add(linear(x, weight_.use()), bias_); }

 private:
  Weight weight_;
  Var bias_;
};

}  // namespace ssn
