#pragma once
#include "layers/layer.h"

namespace ssn {

/// y (rows, out) = x (rows, in) wᵀ + bias. The weight may be shared, the bias is the layer's own.
class Linear {
 public:
  struct Options {
    double deviation = 0;    // of the weight's start values; 0: sqrt(2 / in)
    bool decay_bias = true;  // whether weight decay takes the bias too
  };
  Linear(const Scope& scope, std::int64_t in, std::int64_t out, const Options& options);
  Linear(const Scope& scope, std::int64_t in, std::int64_t out) : Linear(scope, in, out, Options()) {}
  Var operator()(const Var& x) const { return weight_.linear(x, bias_); }
  /// With GELU behind it.
  Var gelu(const Var& x) const { return bias_gelu(weight_.linear(x, {}), bias_); }

 private:
  Weight weight_;
  Var bias_;
};

}  // namespace ssn
